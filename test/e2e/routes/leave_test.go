// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// One of three balancers leaves in every way that there is, under load, and
// comes back: no packet is lost, and no connection breaks.
func TestLeave(t *testing.T) {
	for _, router := range []netlab.RouterKind{netlab.FRR, netlab.BIRD} {
		t.Run(string(router), func(t *testing.T) {
			l := bringUp(t, "leave-"+string(router), harness.Routed(t, netlab.ECMPOptions{Router: router, Servers: 4}))
			t.Run("node drained", func(t *testing.T) { l.checkLossless(t, l.leaveByDrain) })
			t.Run("service drained", func(t *testing.T) { l.checkLossless(t, l.leaveByService) })
			t.Run("terminated", func(t *testing.T) { l.checkLossless(t, l.leaveByTermination) })
			t.Run("hung", func(t *testing.T) { l.checkLossless(t, l.leaveByHanging) })
			if router == netlab.BIRD {
				l.checkSilent(t, l.leaveMissed)
			} else {
				l.checkSilent(t, l.leaveUnnoticed)
				t.Run("killed, and back at once", func(t *testing.T) { l.checkLossless(t, l.leaveForAMoment) })
			}
		})
	}
}

// BIRD keeps the routes of an agent that is gone if BFD has no say in that.
func TestLeaveWithoutBFD(t *testing.T) {
	topology := harness.Routed(t, netlab.ECMPOptions{Router: netlab.BIRD, Servers: 4})
	const file, bfd = "bird.conf", "  bfd on;\n"
	files := topology.Host("router").Files
	if !strings.Contains(files[file], bfd) {
		t.Fatalf("no %q in %s", bfd, files[file])
	}
	files[file] = strings.Replace(files[file], bfd, "", 1)
	l := bringUp(t, "leave-bfdless", topology)
	l.checkSilent(t, l.leaveUnnoticed)
}

// checkSilent ends an agent without a NOTIFICATION.
func (l *lab) checkSilent(t *testing.T, leave func(*testing.T, *netlab.HostState, unix.Signal)) {
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			l.checkLossless(t, func(t *testing.T, h *netlab.HostState) { leave(t, h, signal) })
		})
	}
}

// checkLossless lets a balancer leave and come back while clients hold
// connections open, open others all the time, and send datagrams.
func (l *lab) checkLossless(t *testing.T, leave func(*testing.T, *netlab.HostState)) {
	h := l.State().Host("lb2")
	l.awaitVia(t, "lb1", "lb2", "lb3")
	l.CheckPackets(t, "forward_l2dsr", func() {
		lasting := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))
		brief := l.Load(t, "client", harness.LoadLimit, "-c", "4", "-H", "Connection: close", harness.Origin(harness.VIP4))
		echoed := l.echoes(t, "client", harness.VIP4)
		l.awaitLoad(t, h)
		leave(t, h)
		l.awaitVia(t, "lb1", "lb2", "lb3")
		l.awaitLoad(t, h)
		t.Logf("%d requests on lasting connections, %d on connections of their own, %d rounds of datagrams",
			lasting.End(t), brief.End(t), echoed())
	})
}

// awaitLoad waits until packets have come to a balancer.
func (l *lab) awaitLoad(t *testing.T, h *netlab.HostState) {
	t.Helper()
	before := l.received(t, h)
	harness.Until(t, "packets come to "+h.Name, func() bool { return l.received(t, h) > before+1000 })
}

// received is how many frames have come to a balancer.
func (l *lab) received(t *testing.T, h *netlab.HostState) uint64 {
	t.Helper()
	return harness.Frames(t, l.Lab, "switch")[h.Name].Received
}

// awaitVia waits until the router sends packets for the VIP of IPv4 to these
// balancers.
func (l *lab) awaitVia(t *testing.T, balancers ...string) {
	t.Helper()
	l.awaitRouteOf(t, harness.VIP4, balancers...)
}

// awaitRouteOf waits until the router sends packets for a VIP to these balancers,
// or has no route.
func (l *lab) awaitRouteOf(t *testing.T, vip string, balancers ...string) {
	t.Helper()
	if err := l.awaitRoute(t, hostRoute(vip), balancers); err != nil {
		t.Fatal(err)
	}
}

// awaitRoute waits until the router's route to a prefix leads to these hosts.
func (l *lab) awaitRoute(t *testing.T, prefix netip.Prefix, via []string) error {
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	return l.AwaitRoute(ctx, netlab.LearnedRoute{Host: "router", Prefix: prefix, Via: via})
}

func hostRoute(vip string) netip.Prefix {
	a := netip.MustParseAddr(vip)
	return netip.PrefixFrom(a, a.BitLen())
}

// awaitSilence waits until no packet of a client comes to a balancer any more.
func (l *lab) awaitSilence(t *testing.T, h *netlab.HostState) {
	t.Helper()
	forwarded := harness.ExitsOf(t, h)["forward_l2dsr"]
	harness.Until(t, "nothing comes to "+h.Name, func() bool {
		before := forwarded
		forwarded = harness.ExitsOf(t, h)["forward_l2dsr"]
		return before == forwarded
	})
}

func (l *lab) leaveByDrain(t *testing.T, h *netlab.HostState) {
	l.Show(t, h.Name, "drain", "node")
	l.awaitVia(t, "lb1", "lb3")
	l.awaitSilence(t, h)
	l.Show(t, h.Name, "undrain", "node")
}

// The last service of an address takes the address along, before it refuses new
// flows.
func (l *lab) leaveByService(t *testing.T, h *netlab.HostState) {
	l.Show(t, h.Name, "drain", "service", "echo")
	l.awaitVia(t, "lb1", "lb2", "lb3")
	l.Show(t, h.Name, "drain", "service", "web")
	l.awaitVia(t, "lb1", "lb3")
	l.Show(t, h.Name, "undrain", "service", "web")
	l.Show(t, h.Name, "undrain", "service", "echo")
}

// SIGTERM empties the node before it ends the agent.
func (l *lab) leaveByTermination(t *testing.T, h *netlab.HostState) {
	began := time.Now()
	<-l.SignalAgent(t, h, unix.SIGTERM)
	t.Logf("the agent ended %s after SIGTERM", time.Since(began).Round(time.Millisecond))
	l.awaitVia(t, "lb1", "lb3")
	if log := l.Run(t, h.Name, "cat", "agent.log"); !strings.Contains(log, `msg="node drained"`) {
		t.Error("the agent didn't wait until it was quiet")
	}
	l.StartAgent(t, h)
}

// BFD detects an agent that hangs, though the kernel continues forwarding.
func (l *lab) leaveByHanging(t *testing.T, h *netlab.HostState) {
	harness.Until(t, "BFD is up", func() bool { return l.Routes(t, h.Name).Peers[0].BFD == bgp.BFDUp })
	resume := l.pause(t, h)
	l.awaitVia(t, "lb1", "lb3")
	resume()
}

// pause halts a balancer's agent until the test ends, or resume is called.
func (l *lab) pause(t *testing.T, h *netlab.HostState) (resume func()) {
	t.Helper()
	agent := l.Agent(t, h)
	if err := unix.PidfdSendSignal(agent, unix.SIGSTOP, nil, 0); err != nil {
		t.Fatal(err)
	}
	resume = sync.OnceFunc(func() {
		defer unix.Close(agent)
		if err := unix.PidfdSendSignal(agent, unix.SIGCONT, nil, 0); err != nil {
			t.Errorf("%s: %v", h.Name, err)
		}
	})
	t.Cleanup(resume)
	return resume
}

// An agent that ends without a NOTIFICATION keeps its routes: the kernel continues
// balancing, and the next agent adopts its state.
func (l *lab) leaveUnnoticed(t *testing.T, h *netlab.HostState, signal unix.Signal) {
	steady := l.watchRoute(t, harness.VIP4, h.Name)
	<-l.SignalAgent(t, h, signal)
	l.awaitLoad(t, h)
	l.StartAgent(t, h)
	harness.Until(t, "the session is back", func() bool {
		peers := l.Routes(t, h.Name).Peers
		return len(peers) == 1 && peers[0].RoutesAnnounced == 2
	})
	steady()
}

// The next agent begins its session with the router before that misses the former one's BFD:
// nothing falls later for that. An agent starts within the detection time, which is 6 s here.
func (l *lab) leaveForAMoment(t *testing.T, h *netlab.HostState) {
	config := *l.Topology.Host(h.Name).Agent.BGP
	config.Peers = slices.Clone(config.Peers)
	config.Peers[0].BFD = &bgp.BFD{Interval: 2 * time.Second, Multiplier: 3}
	l.reconfigureBGP(t, h, &config)
	up := func() bool {
		peers := l.Routes(t, h.Name).Peers
		return len(peers) == 1 && peers[0].BFD == bgp.BFDUp && peers[0].RoutesAnnounced == 2
	}
	harness.Until(t, "BFD is up, with the new interval at the router", func() bool {
		var theirs []struct {
			Peer         string `json:"peer"`
			Milliseconds int    `json:"remote-transmit-interval"`
		}
		l.FRR(t, "show bfd peers", &theirs)
		for _, p := range theirs {
			if p.Peer == l.Address(h.Name).String() && p.Milliseconds == 2000 {
				return up()
			}
		}
		return false
	})
	l.awaitVia(t, "lb1", h.Name, "lb3")
	steady := l.watchRoute(t, harness.VIP4, h.Name)
	<-l.SignalAgent(t, h, unix.SIGKILL)
	l.StartAgent(t, h)
	harness.Until(t, "BFD is up again", up)
	if peer := l.Routes(t, h.Name).Peers[0]; peer.Flaps+peer.BFDFlaps > 0 {
		t.Errorf("sessions of the next agent fell: %+v", peer)
	}
	steady()
}

// A router that obeys BFD also while it waits for the next agent, against RFC
// 5882 §4.3, moves the packets to other balancers until then: who hash alike.
func (l *lab) leaveMissed(t *testing.T, h *netlab.HostState, signal unix.Signal) {
	<-l.SignalAgent(t, h, signal)
	l.awaitVia(t, "lb1", "lb3")
	l.StartAgent(t, h)
}

// watchRoute follows the router's route to a VIP. end reports each time when the route did
// not lead to a balancer.
func (l *lab) watchRoute(t *testing.T, vip, balancer string) (end func()) {
	t.Helper()
	prefix := hostRoute(vip)
	routes, err := l.FollowRoutes("router", prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(routes.Close)
	return func() {
		t.Helper()
		events, err := routes.Take()
		if err != nil {
			t.Error(err)
		}
		for _, e := range append(events, netlab.RouteEvent{Hops: routes.Hops(prefix)}) {
			if names := routes.Names(e.Hops); !slices.Contains(names, balancer) {
				t.Errorf("the router's route led to %v", names)
			}
		}
	}
}
