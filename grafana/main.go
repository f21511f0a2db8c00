// Command grafana writes the dashboards: cd grafana && go run . FOLDER. They are made here and not in Grafana, so that
// every name in a query comes from telemetry/names.go.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"cachelab/app/modes"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cd grafana && go run . FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(folder string) error {
	files, err := files(modes.All())
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return fmt.Errorf("write a dashboard: %w", err)
		}
	}
	return nil
}

// files are the dashboards as JSON, by the name of their file. They compare the modes of the table.
func files(table modes.Table) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, page := range []*page{herd(table), gallery(table), underTheHood(table)} {
		built, err := page.Build()
		if err != nil {
			return nil, fmt.Errorf("build a dashboard: %w", err)
		}
		text, err := json.MarshalIndent(built, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", *built.Uid, err)
		}
		// queries stay readable; the SDK escapes what is only special in HTML
		text = bytes.ReplaceAll(text, []byte(`\u003e`), []byte(">"))
		text = bytes.ReplaceAll(text, []byte(`\u003c`), []byte("<"))
		text = bytes.ReplaceAll(text, []byte(`\u0026`), []byte("&"))
		all[*built.Uid+".json"] = append(text, '\n')
	}
	return all, nil
}
