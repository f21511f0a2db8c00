package modes_test

import (
	"regexp"
	"testing"

	"cachelab/app/modes"
)

func TestEachModeIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range modes.All() {
		if seen[m.Name] || seen[m.Color] {
			t.Errorf("%s: its name or its colour is another's", m.Name)
		}
		seen[m.Name], seen[m.Color] = true, true
		if m.Name == "" || m.Short == "" || m.Long == "" || m.See == "" || m.Good == "" || m.Costs == "" || m.New == nil || m.Judge == nil {
			t.Errorf("%+v lacks something", m)
		}
		if !regexp.MustCompile(`^#[0-9A-F]{6}$`).MatchString(m.Color) {
			t.Errorf("%s: colour %q", m.Name, m.Color)
		}
	}
	if names := modes.Or(modes.All().Names()[:2]); names != "broken or fixed" {
		t.Errorf("the seed's two are not the first: %s", names)
	}
}

func TestAModeThatIsNotThereIsNamedWithThoseThatAre(t *testing.T) {
	table := modes.Table{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	if _, err := table.Find("d"); err == nil || err.Error() != `there is no mode "d": want a, b or c` {
		t.Errorf("got %v", err)
	}
	if m, err := table.Find("b"); err != nil || m.Name != "b" {
		t.Errorf("got %v, %v", m, err)
	}
}
