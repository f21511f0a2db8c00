package main

import (
	"fmt"
	"html"
	"regexp"
	"strings"
)

// screen is a terminal of 80 columns as HTML.
const screen = `<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: transparent; }
.screen { display: inline-block; padding: 18px 22px; background: #12161c; color: #d6dbe3; border-radius: 10px;
  font: 13.289px/16px "DejaVu Sans Mono", monospace; white-space: pre; min-width: 80ch; } /* 8 px across, so that blocks join */
.b { font-weight: bold; color: #fff; } .f { color: #8792a2; } .c31 { color: #ff7b72; } .c32 { color: #3fd39b; } .c33 { color: #e0b44c; }
</style><div class="screen">%s</div>`

var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// terminalPage draws what a program printed, with the few codes that the lab uses: bold, faint, and colours.
func terminalPage(printed string) string {
	var body strings.Builder
	at := 0
	opened := false
	shut := func() {
		if opened {
			body.WriteString("</span>")
		}
		opened = false
	}
	for _, code := range sgr.FindAllStringSubmatchIndex(printed, -1) {
		body.WriteString(html.EscapeString(printed[at:code[0]]))
		at = code[1]
		shut()
		var classes []string
		for part := range strings.SplitSeq(printed[code[2]:code[3]], ";") {
			switch part {
			case "1":
				classes = append(classes, "b")
			case "2":
				classes = append(classes, "f")
			case "31", "32", "33":
				classes = append(classes, "c"+part)
			}
		}
		if len(classes) > 0 {
			fmt.Fprintf(&body, `<span class="%s">`, strings.Join(classes, " "))
			opened = true
		}
	}
	body.WriteString(html.EscapeString(printed[at:]))
	shut()
	return fmt.Sprintf(screen, body.String())
}
