package backend_test

import (
	"net/http"
	"net/url"
	"os"
	"testing"

	"cachelab/app/backend"
)

// What it tells users to call must be a place that they can call: [::] is none.
func TestAServerOnAllAddressesHasTheNameOfItsMachine(t *testing.T) {
	s, err := backend.Listen(":0", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if at.Hostname() != name || at.Port() == "0" {
		t.Errorf("serves at %s, want the name %s and a port", s.URL, name)
	}
}
