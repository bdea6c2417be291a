// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// Both sides find a failure within a second: a busy machine may keep a process from
// running for longer than bgp.DefaultBFD waits.
const frrProfile = `bfd
 profile fast
  detect-multiplier 10
  receive-interval 100
  transmit-interval 100
 exit
!
`

// frrPeers are bgpd's, static or taken from ranges; all are watched.
func frrPeers(peers string) string {
	return `router bgp 65000
 bgp router-id ` + next4 + `
 no bgp ebgp-requires-policy
 timers bgp 1 3
 neighbor LB peer-group
 neighbor LB remote-as external
 neighbor LB timers 1 3
 neighbor LB timers connect 1
 neighbor LB bfd profile fast
` + peers + ` address-family ipv6 unicast
  neighbor LB activate
 exit-address-family
`
}

const (
	frrStatic = " neighbor " + near4 + " peer-group LB\n neighbor " + near6 + " peer-group LB\n"
	frrRanges = " bgp listen range 10.0.9.0/24 peer-group LB\n bgp listen range fd00:9::/64 peer-group LB\n"
)

// birdPeers are a BIRD's, static or taken from ranges. Without options of BFD it takes no
// port of BFD's.
func birdPeers(own, asn, bfd string, peers ...string) string {
	text := "router id " + own + ";\nprotocol device {}\n"
	if bfd != "" {
		text += "protocol bfd { interface \"eth0\" { min rx interval 100 ms; min tx interval 100 ms; multiplier 10; }; }\n"
	}
	for i, peer := range peers {
		family := "ipv4"
		if i > 0 {
			family = "ipv6"
		}
		text += fmt.Sprintf(`protocol bgp peer%d {
  local as %s; neighbor %s external; %s
  hold time 3; keepalive time 1; connect delay time 0; connect retry time 1; error wait time 1, 1;
  %s { import all; export all; };
}
`, i, asn, peer, bfd, family)
	}
	return text
}

// Real routers' sessions come up, each side finds each failure, and no failure
// leads to another one. Where a router's sessions live only while BGP does, a
// BIRD without BFD speaks BGP on our side.
func TestRouters(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, lab *netlab.Lab) *router{
		"FRR, static": func(t *testing.T, lab *netlab.Lab) *router {
			return frr(t, lab, "next", frrProfile, frrPeers(frrStatic))
		},
		"FRR, dynamic": func(t *testing.T, lab *netlab.Lab) *router {
			return frr(t, lab, "next", frrProfile, frrPeers(frrRanges))
		},
		"BIRD, static": func(t *testing.T, lab *netlab.Lab) *router {
			return bird(t, lab, "next", birdPeers(next4, "65000", "bfd on;", near4, near6))
		},
		"BIRD, dynamic": func(t *testing.T, lab *netlab.Lab) *router {
			return bird(t, lab, "next", birdPeers(next4, "65000", "bfd on; passive on;", "range 10.0.9.0/24", "range fd00:9::/64"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			lab := newLab(t)
			near := startEnd(t, lab, "near")
			next := [...]Peer{to(next4), to(next6)}
			next[0].Multiplier, next[1].Multiplier = 10, 10
			near.set(next[:]...)
			r := start(t, lab)
			r.start()
			bird(t, lab, "near", birdPeers(near4, "65021", "", next4, next6)).start()
			w := &watched{t: t, lab: lab, near: near, router: r}
			w.up(0, "at first")
			w.stays()
			for range 3 {
				w.linkCut()
				w.hang()
			}
			w.routerRestarts()
			w.leaves()
		})
	}
}

// watched is an end of ours and a router that watch each other.
type watched struct {
	t      *testing.T
	lab    *netlab.Lab
	near   *end
	router *router
}

// up waits until both sides see both families' sessions up.
func (w *watched) up(since int, when string) {
	w.t.Helper()
	begin := time.Now()
	for _, peer := range []string{next4, next6} {
		await.True(w.t, when+", "+peer+" is up", func() bool { return w.near.ask(peer).BFD == bgp.BFDUp })
	}
	for _, peer := range []string{near4, near6} {
		await.True(w.t, when+", the router sees "+peer+" up", func() bool { return w.router.sees(peer, true) })
	}
	w.t.Logf("%s: up after %s, %d events", when, time.Since(begin).Round(time.Millisecond), w.near.mark()-since)
}

// stays looks for some time whether the sessions flap.
func (w *watched) stays() {
	w.t.Helper()
	mark := w.near.mark()
	flaps := w.near.ask(next4).BFDFlaps
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if w.near.ask(next4).BFDFlaps != flaps {
			w.t.Fatalf("session flaps: %+v", w.near.events[mark:])
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *watched) linkCut() {
	w.t.Helper()
	mark, cut := w.near.mark(), time.Now()
	plug(w.t, w.lab, "next", false)
	for _, peer := range []string{next4, next6} {
		e := w.near.await(mark, peer, bgp.BFDDown)
		w.t.Logf("link cut: %s found down after %s: %s", peer, e.At.Sub(cut).Round(time.Millisecond), e.Diagnostic)
		if e.Diagnostic != DetectionTimeExpired {
			w.t.Errorf("%+v", e)
		}
	}
	w.routerFinds("link cut", cut)
	mark = w.near.mark()
	plug(w.t, w.lab, "next", true)
	w.up(mark, "link mended")
}

func (w *watched) hang() {
	w.t.Helper()
	mark, hung := w.near.mark(), time.Now()
	w.near.signal(syscall.SIGSTOP)
	w.routerFinds("hang", hung)
	w.near.signal(syscall.SIGCONT)
	for _, peer := range []string{next4, next6} {
		w.near.await(mark, peer, bgp.BFDDown)
	}
	w.up(mark, "hang over")
}

func (w *watched) routerFinds(what string, since time.Time) {
	w.t.Helper()
	for _, peer := range []string{near4, near6} {
		await.True(w.t, what+", the router sees "+peer+" down", func() bool { return w.router.sees(peer, false) })
		w.t.Logf("%s: the router says so of %s after %s", what, peer, time.Since(since).Round(time.Millisecond))
	}
}

func (w *watched) routerRestarts() {
	w.t.Helper()
	mark := w.near.mark()
	w.router.kill()
	for _, peer := range []string{next4, next6} {
		w.near.await(mark, peer, bgp.BFDDown)
	}
	w.router.start()
	w.up(mark, "router restarted")
}

func (w *watched) leaves() {
	w.t.Helper()
	began := time.Now()
	w.near.leave()
	w.t.Logf("left after %s", time.Since(began).Round(time.Millisecond))
	w.routerFinds("left", began)
}
