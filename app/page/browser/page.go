package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// startBrowser starts a headless Chromium with a profile of its own. Cancel ends it.
func startBrowser(ctx context.Context, profile string) (context.Context, context.CancelFunc) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(profile), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true))
	ctx, cancel := chromedp.NewExecAllocator(ctx, options...)
	ctx, cancelTab := chromedp.NewContext(ctx)
	return ctx, func() { cancelTab(); cancel() }
}

// observed is what a page did.
type observed struct {
	mu       sync.Mutex // guards all below
	requests []string   // URLs
	errors   []string   // on the console, and uncaught
}

// observe watches the page from now on.
func observe(ctx context.Context) (*observed, error) {
	o := &observed{}
	err := chromedp.Listen(ctx, func(event any) {
		o.mu.Lock()
		defer o.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			o.requests = append(o.requests, e.Request.URL)
		case *runtime.EventExceptionThrown:
			o.errors = append(o.errors, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			o.errors = append(o.errors, fmt.Sprintf("console.%s", e.Type))
		}
	})
	return o, err
}

// open shows a file in a window of that size (in CSS pixels, drawn at scale) and theme: light or dark.
func open(ctx context.Context, file string, width, height int64, scale float64, theme string) error {
	path, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	return visit(ctx, "file://"+path, width, height, scale, theme)
}

// visit shows what is at an address.
func visit(ctx context.Context, url string, width, height int64, scale float64, theme string) error {
	if err := setTheme(ctx, theme); err != nil {
		return err
	}
	return chromedp.Do(ctx, chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)), chromedp.Navigate(url))
}

func setTheme(ctx context.Context, theme string) error {
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		return fmt.Errorf("set the %s theme: %w", theme, err)
	}
	return nil
}
