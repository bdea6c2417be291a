// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"context"
	"io"
	"net"
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
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"fairlead.io/fairlead/test/e2e/harness"
)

// browser is a Chromium without a screen, in the state of a new machine.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu sync.Mutex
	// requests are the URLs that were asked for, complaints what the console says.
	requests, complaints []string
}

// startBrowser runs a browser until the test ends.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	needBrowser(t)
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
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// needBrowser skips a test where the distribution has no browser to install.
func needBrowser(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err == nil {
		return
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil || strings.Contains(string(release), "\nID=debian\n") {
		t.Fatal("no chromium: run scripts/install-deps.sh test")
	}
	t.Skip("no chromium: only Debian has it as a package")
}

// note takes notice of what the page does.
func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, string(e.Type))
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, e.Entry.Text+" "+e.Entry.URL)
	}
}

// checkQuiet fails if the console said anything, or something was asked for that
// is not at the origin.
func (b *browser) checkQuiet(origin string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		b.t.Errorf("the console says %q", b.complaints)
	}
	elsewhere := slices.ContainsFunc(b.requests, func(url string) bool { return !strings.HasPrefix(url, origin) })
	if elsewhere || len(b.requests) < 5 {
		b.t.Errorf("requests %q, want some, and all to %s", b.requests, origin)
	}
}

// do runs actions, which have to end well.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// wear has the page seen in a colour scheme, "light" or "dark", in a window of
// that size.
func (b *browser) wear(scheme string, width, height int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(width, height))
}

// until waits until a JavaScript expression holds.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[bool]("!!("+expression+")",
		chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(2*harness.Timeout)))
	if err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Text("body"))
		b.t.Fatalf("timeout waiting until %s: %v; the page shows\n%s", what, err, text)
	}
}

// picture is what is seen, as PNG.
func (b *browser) picture() []byte {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// tunnel brings a host's status page to an address of this machine, as "ssh -L"
// does, until the test ends.
func (l *lab) tunnel(t *testing.T, host string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	page := harness.Status(t, l.State().Host(host)).Listen
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := l.Dial(context.Background(), host, "tcp", page)
				if err != nil {
					return
				}
				defer far.Close()
				go func() {
					_, _ = io.Copy(far, near)
					far.Close()
				}()
				_, _ = io.Copy(near, far)
			}()
		}
	}()
	return listener.Addr().String()
}
