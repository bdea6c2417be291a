// SPDX-License-Identifier: Apache-2.0

// Package browser shows tests a page in a real browser, Chromium. Tests of status pages and of the page of reports use it.
package browser

import (
	"bytes"
	"context"
	"image/png"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// timeout is how long a page may take to show an expected text.
const timeout = time.Minute

// Browser is a Chromium without a screen, in the state of a new machine.
type Browser struct {
	t   testing.TB
	ctx context.Context

	mu sync.Mutex
	// requests are the URLs of all requests, messages the console's.
	requests, messages []string
}

// Start runs a browser until the test ends, as Need allows.
func Start(t testing.TB) *Browser {
	t.Helper()
	Need(t)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), chromedp.Headless,
		chromedp.NoSandbox, // it is root's
		chromedp.NoFirstRun, chromedp.ExecPath("chromium"), chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("disable-background-networking", true))
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until the process has ended
		closeTab()
	})
	b := &Browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// Need skips a test where the distribution has no Chromium to install.
func Need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err == nil {
		return
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil || strings.Contains(string(release), "\nID=debian\n") {
		t.Fatal("no chromium: run scripts/install-deps.sh test-all")
	}
	t.Skip("no chromium: only Debian has it as a package")
}

// note records requests and messages of the page.
func (b *Browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.messages = append(b.messages, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.messages = append(b.messages, string(e.Type))
	case *log.EventEntryAdded:
		b.messages = append(b.messages, e.Entry.Text+" "+e.Entry.URL)
	}
}

// CheckQuiet fails the test if the console has a message, or a request went to a URL that doesn't begin
// with the origin.
func (b *Browser) CheckQuiet(origin string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.messages) > 0 {
		b.t.Errorf("the console has %q", b.messages)
	}
	elsewhere := slices.ContainsFunc(b.requests, func(url string) bool { return !strings.HasPrefix(url, origin) })
	if elsewhere || len(b.requests) == 0 {
		b.t.Errorf("requests %q, want some, and all to %s", b.requests, origin)
	}
}

// Do runs actions, which have to succeed.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// SetView sets the colour scheme, "light" or "dark", and the size of the window in pixels.
func (b *Browser) SetView(scheme string, width, height int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.Do(chromedp.EmulateViewport(width, height))
}

// Until waits until a JavaScript expression holds, also while the page is loaded again.
func (b *Browser) Until(what, expression string) {
	b.t.Helper()
	const pause = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	for {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if holds {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			text, _ := chromedp.Run(b.ctx, chromedp.Text("body"))
			b.t.Fatalf("timeout waiting until %s (last error: %v); the page shows\n%s", what, err, text)
		}
	}
}

// PDF prints the page and returns the document.
func (b *Browser) PDF() []byte {
	b.t.Helper()
	printed, err := chromedp.Call(b.ctx, page.PrintToPDF, page.PrintToPDFParams{PrintBackground: new(true)})
	if err != nil {
		b.t.Fatal(err)
	}
	return printed.Data
}

// Picture returns the page as PNG, in a colour scheme and in a window of that size, and checks that it
// has both.
func (b *Browser) Picture(scheme string, width, height int64) []byte {
	b.t.Helper()
	b.SetView(scheme, width, height)
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	decoded, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		b.t.Fatal(err)
	}
	if size := decoded.Bounds().Size(); int64(size.X) != width || int64(size.Y) != height {
		b.t.Errorf("the picture has %v pixels, want %d x %d", size, width, height)
	}
	corner, _, _, _ := decoded.At(2, 2).RGBA()
	if dark := corner < 0x8000; dark != (scheme == "dark") {
		b.t.Errorf("the page isn't %s", scheme)
	}
	return picture
}
