// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
)

func TestEndWithoutAWordKeepsRoutes(t *testing.T) {
	r := startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive"))
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1", "10.1.1.2", "fd00:10:1:1::1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	r.awaitHops("10.1.1.2/32", "10.0.2.11")
	r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
	gone := r.watch("10.1.1.1/32", "fd00:10:1:1::1/128")
	s.Abandon()
	await(t, "the router to notice", func() bool {
		return !strings.Contains(r.vtysh("show bgp neighbor 10.0.2.11"), "state = Established")
	})

	again := open(t, router(router4, 65000))
	set(t, again, "10.1.1.1", "fd00:10:1:1::1") // one less than before
	r.awaitHops("10.1.1.2/32")
	awaitEstablished(t, again)
	wants(t, r.vtysh("show bgp neighbor 10.0.2.11"), "R bit", "F bit")
	if lost := gone(); len(lost) > 0 {
		t.Error("lost meanwhile:", lost)
	}
}

// cut ends the connections with a peer's port 179 in the namespace that it is called
// in, as if the kernel had run out of patience: the other end is told by a reset.
func cut(t *testing.T) {
	t.Helper()
	sockets, err := netlink.SocketDiagTCP(netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	cut := false
	for _, s := range sockets {
		if s.State != netlink.TCP_ESTABLISHED || s.ID.DestinationPort != bgp.Port && s.ID.SourcePort != bgp.Port {
			continue
		}
		err := netlink.SocketDestroy(
			&net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)},
			&net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("needs a kernel with CONFIG_INET_DIAG_DESTROY")
		}
		if err != nil {
			t.Fatal(err)
		}
		cut = true
	}
	if !cut {
		t.Fatal("no connection to cut")
	}
}

// lose keeps packets for the router from it until the function that it returns is
// called.
func (r *box) lose() (found func()) {
	r.t.Helper()
	link, err := netlink.LinkByName("eth0")
	r.must(err)
	wrong := &netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: router4.AsSlice(),
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0x99},
	}
	r.must(netlink.NeighSet(wrong))
	return func() { r.must(netlink.NeighDel(wrong)) }
}

// A session that is lost while the agent lives on is no restart (R bit, RFC 4724
// §3), but the data plane went on all the same (F bit): no route may go for a moment.
func TestLostConnectionKeepsRoutes(t *testing.T) {
	for name, breaks := range map[string]func(*box){
		"reset by the router":   func(r *box) { r.do(func() { cut(r.t) }) },
		"reset by the balancer": func(r *box) { cut(r.t) },
		"the router hasn't noticed": func(r *box) {
			found := r.lose()
			cut(r.t)
			found()
		},
	} {
		for router, start := range map[string]func(*testing.T) *box{
			"FRR": func(t *testing.T) *box {
				return startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive")).box
			},
			"BIRD": func(t *testing.T) *box { return startBIRD(t, bird("")) },
		} {
			t.Run(router+" "+name, func(t *testing.T) { lostConnection(t, start(t), breaks) })
		}
	}
}

func lostConnection(t *testing.T, r *box, breaks func(*box)) {
	s := open(t, router(router4, 65000))
	set(t, s, "10.1.1.1", "fd00:10:1:1::1")
	r.awaitHops("10.1.1.1/32", "10.0.2.11")
	r.awaitHops("fd00:10:1:1::1/128", "fd00:2::11")
	awaitEstablished(t, s)
	gone := r.watch("10.1.1.1/32", "fd00:10:1:1::1/128")
	breaks(r)
	await(t, "the loss", func() bool { return s.Peers()[0].Flaps == 1 })
	set(t, s, "10.1.1.2", "10.1.1.1", "fd00:10:1:1::1")
	awaitEstablished(t, s)
	r.awaitHops("10.1.1.2/32", "10.0.2.11") // behind what the router had to clear
	if lost := gone(); len(lost) > 0 {
		t.Error("lost meanwhile:", lost)
	}
	if flaps := s.Peers()[0].Flaps; flaps != 1 {
		t.Error("flaps:", flaps)
	}
}
