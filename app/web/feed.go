package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// frame is how often a visitor is told: what changed in between is told once.
	frame = 100 * time.Millisecond
	// heartbeat is how often something is sent in any case, so that a visitor who has gone is noticed.
	heartbeat = 15 * time.Second
	// patience is how long a visitor may take to accept what is sent. Who does not is left behind; the run never waits.
	patience = 5 * time.Second
	// maxVisitors is how many are served at once.
	maxVisitors = 100
)

// feed sends one visitor what there is, and from then on what changes. Nothing is queued: who is slow gets fewer pictures.
func (s *Server) feed(w http.ResponseWriter, r *http.Request) {
	select {
	case s.visitors <- struct{}{}:
		defer func() { <-s.visitors }()
	default:
		http.Error(w, fmt.Sprintf("%d visitors are here, and more are not served", maxVisitors), http.StatusServiceUnavailable)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // a proxy must not hold it back
	v := visitor{control: http.NewResponseController(w), out: w, stage: &s.stage, state: -1, views: map[*View]int{}}
	// The request is read, and its answer has no end.
	if v.control.SetReadDeadline(time.Time{}) != nil || v.send("retry: 1000\n\n") != nil {
		return
	}
	ticks := time.NewTicker(frame)
	defer ticks.Stop()
	for quiet := time.Duration(0); ; quiet += frame {
		sent, err := v.update()
		switch {
		case err != nil:
			return
		case sent:
			quiet = 0
		case quiet >= heartbeat:
			if quiet = 0; v.send(": here\n\n") != nil {
				return
			}
		}
		select {
		case <-ticks.C:
		case <-r.Context().Done():
			return
		case <-s.closing:
			_, _ = v.update() // how it ended
			return
		}
	}
}

// visitor is one who looks, and what was sent to them.
type visitor struct {
	control *http.ResponseController
	out     http.ResponseWriter
	stage   *stage
	state   int // version
	views   map[*View]int
}

// update sends what is new.
func (v *visitor) update() (sent bool, err error) {
	state, version, views := v.stage.state(v.state)
	if state != nil {
		v.state, sent = version, true
		if err := v.event("state", state); err != nil {
			return sent, err
		}
	}
	for _, view := range views {
		picture, changes := view.picture(v.views[view])
		if picture == nil {
			continue
		}
		v.views[view], sent = changes, true
		if err := v.event("picture", picture); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

func (v *visitor) event(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return v.send(fmt.Sprintf("event: %s\ndata: %s\n\n", name, text))
}

func (v *visitor) send(text string) error {
	if err := v.control.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := v.out.Write([]byte(text)); err != nil {
		return err
	}
	return v.control.Flush()
}
