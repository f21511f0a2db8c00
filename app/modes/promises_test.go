package modes_test

import (
	"testing"
	"testing/synctest"
	"time"

	"cachelab/app/cache"
	"cachelab/app/cache/cachetest"
	"cachelab/app/modes"
)

// Each strategy keeps all promises of the suite but its exceptions, and those it does not keep.
func TestEachStrategyKeepsItsPromises(t *testing.T) {
	for _, m := range modes.All() {
		known := map[string]bool{}
		for _, p := range cachetest.Promises() {
			known[p.Name] = true
			t.Run(m.Name+": "+p.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					err := p.Check(t.Context(), func(parts cachetest.Parts) cache.Strategy {
						return m.New(modes.Parts{Aside: parts.Aside, Lock: parts.Lock, Listener: parts.Listener, WaitTimeout: parts.WaitTimeout,
							Ahead: modes.Ahead{Delta: func(string) (time.Duration, bool) { return 0, false }, Beta: 1, EarlyLock: true, Grace: 3 * time.Second}})
					})
					switch why, except := m.Except[p.Name]; {
					case except && err == nil:
						t.Errorf("it is kept: the exception (%s) is not needed", why)
					case !except && err != nil:
						t.Error(err)
					}
				})
			})
		}
		for name := range m.Except {
			if !known[name] {
				t.Errorf("%s: there is no promise %q to be excepted from", m.Name, name)
			}
		}
	}
}
