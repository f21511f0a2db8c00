package results

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Who reads the lines with other tools finds each key in the README, once.
func TestReadmeHasTheKeysOfTheLines(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Results\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, line := range []any{Start{}, process{}, response{}, errorTexts{}, End{}} {
		for _, key := range keysOf(reflect.TypeOf(line)) {
			if !strings.Contains(section, "`"+key+"`") {
				t.Errorf("the README does not say what %q is in %T", key, line)
			}
		}
	}
	seen := map[string]bool{}
	for _, key := range keysOf(reflect.TypeFor[response]()) {
		if seen[key] {
			t.Errorf("key %q is there twice: encoding/json leaves out both", key)
		}
		seen[key] = true
	}
}

func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			keys = append(keys, keysOf(f.Type)...)
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	return keys
}
