package web

import "encoding/json"

// NewView returns a view of a plan's first run.
func NewView(plan Plan) *View { return newView(&plan, 0, func() {}) }

// Picture is what visitors are sent of a view now; nil if they have been sent it, as they know how many changes there were.
func Picture(v *View, since int) ([]byte, int) {
	p, changes := v.picture(since)
	if p == nil {
		return nil, changes
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return text, changes
}
