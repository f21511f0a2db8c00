package price_test

import (
	"testing"
	"testing/quick"
	"time"

	"cachelab/app/price"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	back := func(text string, backend uint32, number int, delta time.Duration) bool {
		v := price.Value{Price: text, Generation: price.Generation{Backend: time.Duration(backend).String(), Number: number}, Delta: delta}
		read, known := price.Parse(v.String())
		return known && read == v
	}
	if err := quick.Check(back, nil); err != nil {
		t.Error(err)
	}
	if !back("a key (answer 1 of b, 1s) costs 19.99 EUR", 7, 3, 251304*time.Microsecond) {
		t.Error("a price that looks like an envelope is not read")
	}
	v := price.Value{Price: "product:42:price costs 19.99 EUR", Generation: price.Generation{Backend: "k3x9qw", Number: 7}, Delta: 251304 * time.Microsecond}
	if text := v.String(); text != "product:42:price costs 19.99 EUR (answer 7 of k3x9qw, 251.304ms)" {
		t.Errorf("the text is %q", text)
	}
}

func TestValuesOfStrangersAreNotKnown(t *testing.T) {
	for _, text := range []string{"", "19.99", "\x00\xff", "x (answer ", "x (answer 7)", "x (answer 7 of b)", "x (answer 7 of b, 1s", "x (answer 7 of b, 1s) ",
		"x (answer +7 of b, 1s)", "x (answer 7 of b, 1000ms)", "x (answer seven of b, 1s)", "product:42:price costs 19.99 EUR (answer 7)"} {
		if v, known := price.Parse(text); known || v != (price.Value{}) {
			t.Errorf("%q is read as %+v", text, v)
		}
	}
}
