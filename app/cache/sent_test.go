package cache_test

import (
	"reflect"
	"testing"

	"cachelab/app/cache"
)

func TestTheTotalHasEachKindOfCommand(t *testing.T) {
	var sent cache.Sent
	kinds := reflect.ValueOf(&sent).Elem()
	for i := range kinds.NumField() {
		kinds.Field(i).SetInt(1)
	}
	if got := sent.Total(); got != kinds.NumField() || got < 5 {
		t.Errorf("one of each of %d kinds is %d commands", kinds.NumField(), got)
	}
}
