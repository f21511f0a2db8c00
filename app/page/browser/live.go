package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/chromedp/chromedp"
)

// live is the program as it serves the live page.
type live struct {
	url string
	end func() // as Ctrl-C does; may be called again
}

// startProgram serves the page at an address; with port 0, at a free one.
func startProgram(program, listen string) (live, error) {
	command := exec.Command(program, "page", "--listen", listen, "--telemetry", "off")
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return live{}, fmt.Errorf("%w (is the program built?)", err)
	}
	ended := make(chan struct{})
	end := func() {
		_ = command.Process.Signal(os.Interrupt)
		<-ended
	}
	lines := bufio.NewReader(out)
	address := regexp.MustCompile(`http://\S+/`)
	for {
		line, err := lines.ReadString('\n')
		if url := address.FindString(line); url != "" {
			go func() {
				_, _ = io.Copy(io.Discard, lines) // what it prints later must not stop it
				_ = command.Wait()
				close(ended)
			}()
			return live{url, end}, nil
		}
		if err != nil {
			return live{}, errors.Join(errors.New("the program did not say where the page is"), command.Wait())
		}
	}
}

// wait returns when the page is so.
func wait(ctx context.Context, script string) error {
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+script+")"))
		if is || err != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("never: %s: %w", script, context.Cause(ctx))
		}
	}
}

// stills are pictures of the live page: a script that does something there, what to wait for, and the file.
var stills = []struct{ do, until, file string }{
	{`set("backend-latency", "600ms"); set("rounds", "1"); start()`, `calls("broken", ":not(.queued)").length > 28`, "live-broken.png"},
	{``, `[...calls("fixed", "")].some((bar) => bar.getBoundingClientRect().width > 25)`, "live-fixed.png"},
	{``, `over()`, ""},
	{`pick("coalesced"); pick("stale"); pick("traffic"); set("each", "8s"); set("backend-latency", "250ms"); start()`, `!over()`, ""},
	{``, `over()`, "live-gallery.png"},
}

// hands do on the page what a visitor does.
const hands = `
  var set = (name, value) => { const input = document.getElementById("set-" + name); input.value = value; input.dispatchEvent(new Event("input")); };
  var pick = (value) => document.querySelector("input[value=" + value + "]").click();
  var start = () => document.getElementById("start").click();
  var over = () => document.getElementById("standing").textContent === "Finished";
  var calls = (mode, which) => document.querySelectorAll("#pictures [data-mode=" + mode + "] .rows rect:is(.call, .wait, .queued)" + which);
  true`

// drawLive draws the stills.
func drawLive(ctx context.Context, program, into string) error {
	l, err := startProgram(program, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.end()
	if err := visit(ctx, l.url, 1440, 900, 1, "light"); err != nil {
		return err
	}
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](hands)); err != nil {
		return err
	}
	for _, still := range stills {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](still.do+"; true")); err != nil {
			return err
		}
		if err := wait(ctx, still.until); err != nil {
			return err
		}
		if still.file == "" {
			continue
		}
		picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return fmt.Errorf("draw %s: %w", still.file, err)
		}
		if err := keep(picture, filepath.Join(into, still.file)); err != nil {
			return err
		}
	}
	return nil
}
