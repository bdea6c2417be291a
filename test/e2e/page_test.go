// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"fairlead.io/fairlead/internal/lb"
)

var update = flag.Bool("update", false, "write the pictures of the status page in docs/images anew")

const unservedPort = 443

// unserved is the name of a service without backends: one that does something on
// a page which takes names for markup, but in a picture.
func unserved() string {
	if *update {
		return "intranet"
	}
	return "<b/onclick=alert(1)>bold</b>"
}

// The status page in a real browser, while real traffic flows and the
// configuration changes.
func TestStatusPage(t *testing.T) {
	needRoot(t)
	needBrowser(t)
	l := bringUp(t, "page", ecmp(t, lb.L2DSR))
	configured := append(l.topology.Services, lb.Service{
		Name: unserved(), VIP: lb.VIP{Address: netip.MustParseAddr(vip4), Port: unservedPort, Protocol: lb.TCP}, Forward: lb.L2DSR,
	})
	l.configure(t, configured)
	address := l.tunnel(t, "lb1")
	b := startBrowser(t)
	b.wear("light", 1280, 1000)
	b.do(chromedp.Navigate("http://"+address+"/"), chromedp.WaitVisible(row("web")))

	l.checkLive(t, b, configured)
	l.checkDrops(t, b)
	b.until("a name is shown as it is", fmt.Sprintf("document.querySelector(%q)", row(unserved())))
	b.until("nothing is made of a name", "!document.querySelector('#services b')")
	checkNarrowed(b)
	b.checkQuiet("http://" + address + "/")
	l.checkLost(t, b)
}

// row selects the row of a service.
func row(name string) string { return fmt.Sprintf(`#services tr[data-name="%s"]`, name) }

// cell is what a service's row, or with "tr.detail" that of its backends, has in
// a column, as a JavaScript expression.
func cell(row string, column int) string {
	return fmt.Sprintf("(document.querySelector(%q)?.children[%d]?.textContent ?? '')", row, column)
}

// The page shows what happens, without being loaded again.
func (l *lab) checkLive(t *testing.T, b *browser, configured []lb.Service) {
	const drained = "10.0.2.104"
	b.until("the page is marked", "(window.marked = true)")
	length := 8 * time.Second
	if *update {
		length = 5 * time.Minute
	}
	load := l.load(t, "client", length, "-H", "Connection: close", origin(vip4))
	load6 := l.load(t, "client", length, origin(vip6))
	b.until("packets are counted", cell(row("web"), 3)+" !== '0'")
	b.until("the totals are there", "document.getElementById('packets').textContent.match(/[1-9]/) && document.getElementById('flows').textContent.match(/[1-9]/)")
	b.until("the graph is drawn", "document.querySelector('#packets-graph .line').getAttribute('d').length > 20")
	b.do(chromedp.Click(row("web") + " button"))
	backend := fmt.Sprintf(`#services tr.detail tr[data-key="%s 80"]`, drained)
	b.until("the backend is in use", cell(backend, 7)+" === 'in use'")

	changed := slices.Clone(configured)
	web := slices.IndexFunc(changed, func(s lb.Service) bool { return s.Name == "web" })
	changed[web].Backends = slices.Clone(changed[web].Backends)
	for i := range changed[web].Backends {
		if changed[web].Backends[i].Address.String() == drained {
			changed[web].Backends[i].Weight = 0
		}
	}
	l.configure(t, changed)
	b.until("the backend is drained", cell(backend, 7)+".startsWith('drained')")
	b.until("the service says so", cell(row("web"), 2)+" === '3/4'")
	b.until("the page has not been loaded again", "window.marked")
	if *update {
		l.checkDrops(t, b)
		b.do(chromedp.Sleep(length - 15*time.Second)) // for graphs that are worth a look
	}
	l.keepPicture(t, b, "status.png", "light")
	l.keepPicture(t, b, "status-dark.png", "dark")
	load.waitFlawless(t)
	load6.waitFlawless(t)
}

// checkDrops asks for the service without backends until some of what the router
// sends to the balancer is shown as dropped.
func (l *lab) checkDrops(t *testing.T, b *browser) {
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer stop()
	for range 24 {
		asking.Go(func() {
			if conn, err := l.Dial(ctx, "client", "tcp", fmt.Sprintf("%s:%d", vip4, unservedPort)); err == nil {
				conn.Close()
				t.Error("a service without backends has answered")
			}
		})
	}
	b.until("the drops are shown with their reason", `document.querySelector('#reasons tr[data-key="drop_no_backend"]')`)
}

// keepPicture looks at the page, which has to fill the window, and keeps the
// picture for the documentation if it is asked to.
func (l *lab) keepPicture(t *testing.T, b *browser, name, scheme string) {
	t.Helper()
	b.wear(scheme, 1280, 1000)
	picture := b.picture()
	decoded, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	if size := decoded.Bounds().Size(); size.X != 1280 || size.Y != 1000 {
		t.Errorf("%s: the picture has %v pixels", name, size)
	}
	corner, _, _, _ := decoded.At(2, 2).RGBA()
	if dark := corner < 0x8000; dark != (scheme == "dark") {
		t.Errorf("%s: the page is not %s", name, scheme)
	}
	if *update {
		path := filepath.Join("..", "..", "docs", "images", name)
		if err := os.WriteFile(path, picture, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What is looked at can be narrowed down, also at the width of a telephone, and
// is kept in the address.
func checkNarrowed(b *browser) {
	b.wear("dark", 360, 740)
	b.until("nothing is wider than the window", "document.documentElement.scrollWidth <= 360")
	b.do(chromedp.SendKeys("#filter", "web6"))
	b.until("one service is left", "document.querySelectorAll('#services > tr:not(.detail)').length === 1")
	b.until("the address says so", "location.hash.includes('filter=web6')")
	b.do(chromedp.Reload(), chromedp.WaitVisible(row("web6")))
	b.until("the filter is still there", "document.getElementById('filter').value === 'web6'")
	b.until("so are the open services", "location.hash.includes('open=web')")
	b.wear("light", 1280, 1000)
}

// The page says when the agent is gone, and goes on when it is back.
func (l *lab) checkLost(t *testing.T, b *browser) {
	h := l.State().Host("lb1")
	l.kill(t, h, "agent")
	b.until("the page misses the agent", "!document.getElementById('gone').hidden && document.getElementById('link').textContent === 'no connection'")
	if err := l.Start(t.Context(), h.Name, l.process(t, h.Name, "agent")); err != nil {
		t.Fatal(err)
	}
	b.until("the page has the agent again", "document.getElementById('gone').hidden && document.getElementById('link').textContent === 'live'")
}
