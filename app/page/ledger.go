package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cachelab/app/facts"
)

// ledgerRow is one key of the JSON with its value in each run.
type ledgerRow struct {
	Key    string   `json:"key"`
	Values []string `json:"values"` // "" where the run has no such key
}

// ledgerRows are the runs' JSON as a table: the same keys, the same figures, whatever is added to it.
func ledgerRows(runs []Run) []ledgerRow {
	var rows []ledgerRow
	for i, r := range runs {
		text, err := json.Marshal(r.Run)
		if err != nil {
			continue // cannot happen: a run is plain data
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		flatten(decoder, "", func(key, value string) {
			at := slices.IndexFunc(rows, func(row ledgerRow) bool { return row.Key == key })
			if at < 0 {
				at = len(rows)
				rows = append(rows, ledgerRow{key, make([]string, len(runs))})
			}
			rows[at].Values[i] = value
		})
	}
	return rows
}

// flatten reads one JSON value and tells each leaf as "lock.held". A list is one leaf.
func flatten(d *json.Decoder, key string, tell func(key, value string)) {
	switch token, _ := d.Token(); token {
	case json.Delim('{'):
		for d.More() {
			name, _ := d.Token()
			flatten(d, strings.TrimPrefix(fmt.Sprint(key, ".", name), "."), tell)
		}
		_, _ = d.Token()
	case json.Delim('['):
		var items []string
		n := 0
		for ; d.More(); n++ {
			flatten(d, key, func(_, value string) {
				if n < facts.MaxLinks {
					items = append(items, value)
				}
			})
		}
		_, _ = d.Token()
		text := strings.Join(items, ", ")
		if n > facts.MaxLinks {
			text += fmt.Sprintf(" and %d more in the JSON", n-facts.MaxLinks)
		}
		tell(key, text)
	case nil:
		tell(key, "null")
	default:
		if b, ok := token.(bool); ok {
			tell(key, strconv.FormatBool(b))
			return
		}
		tell(key, fmt.Sprint(token))
	}
}
