// Command browser draws the pictures of the README: it makes a comparison with the program, opens its HTML report in
// a headless Chromium, shows the end of what it printed as a terminal would, and starts runs on the live page.
//
//	go run . -program ../../../.bin/cachelab -into ../images
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

func main() {
	program := flag.String("program", "../../../.bin/cachelab", "the program")
	into := flag.String("into", "../images", "where the pictures go")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := draw(ctx, *program, *into); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// draw makes all pictures.
func draw(ctx context.Context, program, into string) (err error) {
	dir, err := os.MkdirTemp("", "pictures")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	page, terminal := filepath.Join(dir, "report.html"), filepath.Join(dir, "terminal.html")

	command := exec.CommandContext(ctx, program, "compare", "--redis", "embedded", "--telemetry", "off", "--records", "", "--report", page)
	command.Env = append(os.Environ(), "TERM=xterm-256color", "COLORTERM=truecolor", "CLICOLOR_FORCE=1")
	printed, err := command.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if err := os.WriteFile(terminal, []byte(terminalPage(ending(string(printed)))), 0o644); err != nil {
		return err
	}

	ctx, cancel := startBrowser(ctx, filepath.Join(dir, "profile"))
	defer cancel()
	// A picture cannot be pointed at.
	const still = `document.head.insertAdjacentHTML("beforeend", "<style>.detail, details { display: none } .legend { margin: .9rem 0 0 }</style>")`
	for _, theme := range []string{"light", "dark"} {
		if err := open(ctx, page, 1180, 900, 1.5, theme); err != nil {
			return err
		}
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[*runtime.RemoteObject](still)); err != nil {
			return err
		}
		if err := shoot(ctx, ".waterfalls", filepath.Join(into, "waterfalls-"+theme+".png")); err != nil {
			return err
		}
	}
	if err := open(ctx, terminal, 900, 900, 1.5, "dark"); err != nil {
		return err
	}
	if err := shoot(ctx, ".screen", filepath.Join(into, "terminal.png")); err != nil {
		return err
	}
	return drawLive(ctx, program, into)
}

// ending is what a comparison ends with: the waterfalls, the table and the verdicts, below the command.
func ending(printed string) string {
	at := strings.Index(printed, "round 1 of ")
	if at < 0 {
		return printed
	}
	at = strings.LastIndex(printed[:at], "\n") + 1
	end, _, _ := strings.Cut(printed[at:], "\x1b[2mreport: ")
	return "$ make compare\n...\n\n" + strings.TrimSpace(end)
}

func shoot(ctx context.Context, what, file string) error {
	picture, err := chromedp.Run(ctx, chromedp.Screenshot(chromedp.CSS(what)))
	if err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	return keep(picture, file)
}

// keep writes a picture.
func keep(picture []byte, file string) error {
	picture, err := fewColours(picture)
	if err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d kB\n", file, len(picture)/1024)
	return nil
}
