// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/browser"
	"fairlead.io/fairlead/test/e2e/harness"
)

var update = flag.Bool("update", false, "write the pictures of the status page in docs/images")

const unservedPort = 443

// pageHeight is the height in pixels of a window that shows all of the page.
const pageHeight = 1330

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
	t.Parallel()
	harness.NeedRoot(t)
	browser.Need(t)
	l := bringUp(t, "page", harness.Routed(t, netlab.ECMPOptions{Router: netlab.FRR, Servers: 4}))
	l.Topology.Services = append(l.Topology.Services, lb.Service{
		Name: unserved(), VIP: lb.VIP{Address: netip.MustParseAddr(harness.VIP4), Port: unservedPort, Protocol: lb.TCP}, Forward: lb.L2DSR,
	})
	for i := range l.Topology.Services {
		if s := &l.Topology.Services[i]; s.Port == 80 {
			s.Health = &lb.HealthCheck{Type: lb.HealthHTTP, Interval: 500 * time.Millisecond, Timeout: 400 * time.Millisecond, Rise: 1, Fall: 2}
		}
	}
	l.Configure(t, l.Topology.Services)
	address := l.tunnel(t, "lb1")
	b := browser.Start(t)
	b.SetView("light", 1280, pageHeight)
	b.Do(chromedp.Navigate("http://"+address+"/"), chromedp.WaitVisible(row("web")))

	l.checkLive(t, b)
	l.checkDrops(t, b)
	l.checkShownRoutes(t, b)
	b.Until("a name is shown as it is", fmt.Sprintf("document.querySelector(%q)", row(unserved())))
	b.Until("nothing is made of a name", "!document.querySelector('#services b')")
	checkNarrowed(b)
	b.CheckQuiet("http://" + address + "/")
	l.checkLost(t, b)
}

// row selects the row of a service.
func row(name string) string { return fmt.Sprintf(`#services tr[data-name="%s"]`, name) }

// cell is the text in a column of a service's row, or with "tr.detail" of its
// backends' row, as a JavaScript expression.
func cell(row string, column int) string {
	return fmt.Sprintf("(document.querySelector(%q)?.children[%d]?.textContent ?? '')", row, column)
}

// The page shows events without being loaded again: packets, a server that
// dies, and one that is drained.
func (l *lab) checkLive(t *testing.T, b *browser.Browser) {
	length := harness.LoadLimit
	if *update {
		length = 150 * time.Second
	}
	b.Until("the page is marked", "window.marked = true")
	load := l.Load(t, "client", length, "-H", "Connection: close", harness.Origin(harness.VIP4))
	load6 := l.Load(t, "client", length, harness.Origin(harness.VIP6))
	b.Until("packets are counted", cell(row("web"), 3)+" !== '0'")
	b.Until("the totals are there", "document.getElementById('packets').textContent.match(/[1-9]/) && document.getElementById('flows').textContent.match(/[1-9]/)")
	b.Until("the graph is drawn", "document.querySelector('#packets-graph .line').getAttribute('d').length > 20")
	b.Do(chromedp.Click(row("web") + " button"))
	b.Until("all backends are healthy", fmt.Sprintf("document.querySelectorAll(%q).length === 4", "#services tr.detail .health.good"))
	l.fillGraphs(t, b, length)

	if err := l.Stop(t.Context(), "server4", "nginx"); err != nil {
		t.Fatal(err)
	}
	dead := fmt.Sprintf(`#services tr.detail tr[data-key="%s 80"]`, "10.0.2.104")
	b.Until("the dead server is found", cell(dead, 2)+".startsWith('unhealthy')")
	b.Until("it is out of use", cell(dead, 7)+".startsWith('out')")
	harness.Show(t, "drain", "backend", "web", "10.0.2.103:80", "--socket", l.State().Host("lb1").Socket)
	drained := fmt.Sprintf(`#services tr.detail tr[data-key="%s 80"]`, "10.0.2.103")
	b.Until("the drained server is shown", cell(drained, 7)+" === 'drained'")
	b.Until("the service says so", cell(row("web"), 2)+" === '2/4' && "+cell(row("web"), 8)+".startsWith('degraded')")
	b.Until("both are among the events", `[...document.querySelectorAll('#events li')].filter((li) => /health.*104:80|drain.*103:80/.test(li.textContent)).length === 2`)
	b.Until("the page has not been loaded again", "window.marked")
	keepPicture(t, b, "status.png", "light")
	keepPicture(t, b, "status-dark.png", "dark")
	load.Interrupt(t)
	load6.Interrupt(t)
	load.Wait(t) // connections to the dead server were lost
	load6.Wait(t)
}

// checkShownRoutes follows a route and a session as they come and go.
func (l *lab) checkShownRoutes(t *testing.T, b *browser.Browser) {
	route := fmt.Sprintf(`#announcements tr[data-key="%s/128"]`, harness.VIP6)
	peer := fmt.Sprintf(`#peers tr[data-key^="%s "]`, l.Address("router"))
	b.Until("the session is shown", cell(peer, 7)+" === 'established' && "+cell(peer, 4)+" === 'up'")
	b.Until("the route is shown", cell(route, 6)+" === 'announced' && "+cell(route, 2)+fmt.Sprintf(" === '%s'", l.Address("router")))
	b.Until("both are counted", "document.getElementById('announced').textContent === '2 of 2 announced, 1 of 1 peers established'")
	for _, service := range []string{"web6", "echo6"} {
		l.Show(t, "lb1", "drain", "service", service)
	}
	b.Until("the route says why it is gone", cell(route, 6)+".match(/^not announced: .*web6: drained/)")
	for _, service := range []string{"web6", "echo6"} {
		l.Show(t, "lb1", "undrain", "service", service)
	}
	b.Until("the route is back", cell(route, 6)+" === 'announced'")
	if err := l.Stop(t.Context(), "router", "bgpd"); err != nil {
		t.Fatal(err)
	}
	// The reset of a host without bgpd has no signature, and is ignored.
	b.Until("the peer says why it is gone", cell(peer, 7)+".match(/^idle: timed out: .*, next try in /)")
	b.Until("no peer has the route", cell(route, 6)+".startsWith('no peer')")
	if err := l.Start(t.Context(), "router", l.Process(t, "router", "bgpd")); err != nil {
		t.Fatal(err)
	}
	b.Until("the session is back", cell(peer, 7)+" === 'established'")
}

// fillGraphs waits until pictures for the documentation are worth a look.
func (l *lab) fillGraphs(t *testing.T, b *browser.Browser, length time.Duration) {
	if *update {
		b.Do(chromedp.Sleep(length / 3))
		l.checkDrops(t, b)
		b.Do(chromedp.Sleep(length / 3))
	}
}

// checkDrops asks for the service without backends until packets from the router to
// the balancer are shown as dropped.
func (l *lab) checkDrops(t *testing.T, b *browser.Browser) {
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer stop()
	for range 24 {
		asking.Go(func() {
			if conn, err := l.Dial(ctx, "client", "tcp", fmt.Sprintf("%s:%d", harness.VIP4, unservedPort)); err == nil {
				conn.Close()
				t.Error("a service without backends has answered")
			}
		})
	}
	b.Until("the drops are shown with their reason", `document.querySelector('#reasons tr[data-key="drop_no_backend"]')`)
}

// keepPicture takes a picture of the page, and keeps it for the documentation with -update.
func keepPicture(t *testing.T, b *browser.Browser, name, scheme string) {
	t.Helper()
	picture := b.Picture(scheme, 1280, pageHeight)
	if *update {
		path := filepath.Join("..", "..", "..", "docs", "images", name)
		if err := os.WriteFile(path, picture, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The view can be filtered, also at the width of a telephone, and the filter is
// kept in the address.
func checkNarrowed(b *browser.Browser) {
	b.SetView("dark", 360, 740)
	b.Until("nothing is wider than the window", "document.documentElement.scrollWidth <= 360")
	b.Do(chromedp.SendKeys("#filter", "web6"))
	b.Until("one service is left", "document.querySelectorAll('#services > tr:not(.detail)').length === 1")
	b.Until("the address says so", "location.hash.includes('filter=web6')")
	b.Do(chromedp.Reload(), chromedp.WaitVisible(row("web6")))
	b.Until("the filter is still there", "document.getElementById('filter').value === 'web6'")
	b.Until("so are the open services", "location.hash.includes('open=web')")
	b.SetView("light", 1280, pageHeight)
}

// The page shows that the agent is gone, and continues when it is back.
func (l *lab) checkLost(t *testing.T, b *browser.Browser) {
	h := l.State().Host("lb1")
	l.KillAgent(t, h, "agent")
	b.Until("the page misses the agent", "!document.getElementById('gone').hidden && document.getElementById('link').textContent === 'no connection'")
	if err := l.Restart(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	b.Until("the page has the agent again", "document.getElementById('gone').hidden && document.getElementById('link').textContent === 'live'")
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
