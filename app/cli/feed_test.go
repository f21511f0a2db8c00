package cli_test

import (
	"bufio"
	"bytes"
	"net/http"
)

// feedReader reads server-sent events, each of which has one line of data.
type feedReader struct{ lines *bufio.Reader }

func newFeedReader(r *http.Response) feedReader {
	return feedReader{bufio.NewReaderSize(r.Body, 1<<20)}
}

func (f feedReader) next() (event string, data []byte, err error) {
	for {
		line, err := f.lines.ReadBytes('\n')
		if err != nil {
			return "", nil, err
		}
		if name, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			event = string(bytes.TrimSpace(name))
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			return event, data, nil
		}
	}
}
