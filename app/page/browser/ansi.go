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
		if look := style(strings.Split(printed[code[2]:code[3]], ";")); look != "" {
			fmt.Fprintf(&body, `<span style="%s">`, look)
			opened = true
		}
	}
	body.WriteString(html.EscapeString(printed[at:]))
	shut()
	return fmt.Sprintf(screen, body.String())
}

// style is a code as CSS: bold, faint, a colour of its own, or one of the three by number.
func style(parts []string) (css string) {
	for i := 0; i < len(parts); i++ {
		switch parts[i] {
		case "1":
			css += "font-weight: bold; color: #fff;"
		case "2":
			css += "color: #8792a2;"
		case "31":
			css += "color: #ff7b72;"
		case "32":
			css += "color: #3fd39b;"
		case "33":
			css += "color: #e0b44c;"
		case "38": // 38;2;red;green;blue
			if i+4 < len(parts) && parts[i+1] == "2" {
				css += "color: rgb(" + strings.Join(parts[i+2:i+5], " ") + ");"
				i += 4
			}
		}
	}
	return css
}
