// Package price is the form of a cached value: the price, and which answer of which backend it is. A person who looks into Redis
// can read it, too.
package price

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Value is one answer of a backend.
type Value struct {
	Price string // what was asked for
	Generation
	// Delta is how long the fill of this value took: the backend call, its queueing included.
	Delta time.Duration
}

// Generation names one answer of one backend.
type Generation struct {
	Backend string // its id, which has no space; random, so that no two have the same
	Number  int
}

// String is the text that is cached.
func (v Value) String() string {
	return fmt.Sprintf("%s (answer %d of %s, %v)", v.Price, v.Number, v.Backend, v.Delta)
}

// Parse reads such a text. It does not know those of strangers, which are values all the same.
func Parse(text string) (v Value, known bool) {
	at := strings.LastIndex(text, " (answer ")
	if at < 0 {
		return Value{}, false
	}
	number, rest, _ := strings.Cut(text[at+len(" (answer "):], " of ")
	backend, delta, _ := strings.Cut(rest, ", ")
	v.Price, v.Backend = text[:at], backend
	var err, err2 error
	v.Number, err = strconv.Atoi(number)
	v.Delta, err2 = time.ParseDuration(strings.TrimSuffix(delta, ")"))
	if err != nil || err2 != nil || v.String() != text {
		return Value{}, false
	}
	return v, true
}
