// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

// inFragments are frames with the fragments of a frame's packet.
func inFragments(f frame, id uint32, size int) [][]byte {
	var frames [][]byte
	for _, part := range split(packetOf(f), id, size) {
		f.ip, f.payload = []gopacket.SerializableLayer{gopacket.Payload(part)}, ""
		frames = append(frames, f.build())
	}
	return frames
}

// Fragments follow their first one in both directions: that one gets ports and the
// whole packet's checksum, all get the addresses.
func TestNATFragments(t *testing.T) {
	p, _ := newTestPlane(t)
	id := uint32(0)
	for _, c := range natCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.service())
			endAllSessions(t, p)
			port := begin(t, p, c)
			c.payload = string(bytes.Repeat([]byte("fragments"), 150))
			for _, size := range []int{24, 512, 1024} {
				id++
				in, want := inFragments(c.fromClient(tcpACK), id, size), inFragments(c.atServer(tcpACK, port), id, size)
				for i := range in {
					wantBytes(t, p, in[i], want[i], xdpTX, "forward_nat")
				}
				in, want = inFragments(c.fromServer(tcpACK, port), id, size), inFragments(c.atClient(tcpACK), id, size)
				for i := range in {
					wantBytes(t, p, in[i], want[i], xdpTX, "forward_nat_reply")
				}
			}
			later := inFragments(c.fromServer(tcpACK, port), 99, 512)[1]
			wantExit(t, p, later, xdpPass, "pass_fragment")
		})
	}
}

// Options and extension headers are carried along.
func TestNATOptions(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		update(t, p, c.service())
		port := begin(t, p, c)
		in, want := c.fromClient(tcpACK), c.atServer(tcpACK, port)
		if c.vip.Address.Is6() {
			wantBytes(t, p, chain(in.build(), 0, 60, 60), chain(want.build(), 0, 60, 60), xdpTX, "forward_nat")
			continue
		}
		for _, f := range []frame{in, want} {
			f.ip[0].(*layers.IPv4).Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}
		wantFrame(t, p, in, want, xdpTX, "forward_nat")
	}
}

// A backend is a client like any other, also of itself: what it sends to the VIP
// may go back to the station that it came from.
func TestNATHairpin(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		t.Run(c.vip.String(), func(t *testing.T) {
			update(t, p, c.service())
			endAllSessions(t, p)
			c.client = netip.AddrPortFrom(c.backend.Addr(), 50000)
			in := c.fromClient(tcpSYN)
			in.source, in.destination = macOf(c.backend.Addr()), ownMAC
			_, out := run(t, p, in.build())
			port := sourcePort(t, out)
			wantFrame(t, p, in, c.atServer(tcpSYN, port), xdpTX, "forward_nat")
			back := c.atClient(tcpSYN | tcpACK)
			back.source, back.destination = ownMAC, macOf(c.backend.Addr())
			wantFrame(t, p, c.fromServer(tcpSYN|tcpACK, port), back, xdpTX, "forward_nat_reply")
		})
	}
}

// A backend that XDP can't send to: the frame is for the kernel's side, addressed
// as it came and without a VLAN tag, and says so in front.
func TestNATHandover(t *testing.T) {
	p, hops := newTestPlane(t)
	inNamespace(t, func() error {
		device, err := net.InterfaceByName("fl1")
		if err != nil {
			return err
		}
		hops.handover = device.Index
		for _, c := range natCases() {
			for _, id := range []uint16{0, 100} {
				c.vip.Segment = segment(id)
				if _, err := p.Update(t.Context(), c.service()); err != nil {
					return err
				}
				wantHandover(t, p, c, device.Index)
			}
		}
		return nil
	})
}

// A backend at an address of this machine gets packets of the client's own address in both
// modes: the kernel would drop those from its own.
func TestNATToOwnAddress(t *testing.T) {
	p, hops := newTestPlane(t)
	inNamespace(t, func() error {
		hops.handover = nexthop.Loopback
		for _, c := range natCases() {
			for _, forward := range []lb.Forward{lb.NAT, lb.DSR} {
				c.keep = true
				svc := c.service()
				svc.Forward = forward
				if _, err := p.Update(t.Context(), svc); err != nil {
					return err
				}
				wantHandover(t, p, c, nexthop.Loopback)
				endAllSessions(t, p)
			}
			if err := p.Delete(t.Context(), c.vip); err != nil {
				return err
			}
		}
		return nil
	})
}

func wantHandover(t *testing.T, p *xdp.Unattached, c natCase, device int) {
	t.Helper()
	arrival, err := net.InterfaceByName("fl0")
	if err != nil {
		t.Fatal(err)
	}
	in := c.fromClient(tcpSYN)
	var verdict uint32
	var out []byte
	counted := exits(t, p, func() { verdict, out = runAt(t, p, arrival.Index, in.build()) })
	if verdict != xdpPass || len(counted) != 1 || counted["forward_nat_handover"] != 1 {
		t.Errorf("%s: verdict %d, counters %v, want forward_nat_handover", c.vip, verdict, counted)
	}
	meta := []byte{0x31, 0x54, 0x41, 0x4e, byte(device), 0, 0, 0} // NAT_HANDOVER_MAGIC, the device
	if !bytes.HasPrefix(out, meta) {
		t.Errorf("%s: % x, want % x in front", c.vip, out, meta)
		return
	}
	out = out[len(meta):]
	want := c.atServer(tcpSYN, sourcePort(t, out))
	want.destination, want.source = in.destination, in.source
	if want := want.build(); !bytes.Equal(out, want) {
		t.Errorf("frame differs:\n%s", cmp.Diff(dump(want), dump(out)))
	}
}

// twoBackends is a service whose flows can go elsewhere.
func (c natCase) twoBackends() *lb.Service {
	svc := c.service()
	second := svc.Backends[0]
	second.Address = second.Address.Next()
	svc.Backends = append(svc.Backends, second)
	return svc
}

// chosenBy sends the first packet of a session and returns its end at the server.
func chosenBy(t *testing.T, p *xdp.Unattached, c natCase) natEnd {
	t.Helper()
	return endOf(c.vip.Protocol, wantVerdict(t, p, c.fromClient(tcpSYN).build(), xdpTX, "forward_nat"))
}

// Sessions stay on a backend that gets no new ones, or has left; not on one that is
// down or can't be reached: there TCP ends, and UDP goes elsewhere.
func TestNATBackendsLeave(t *testing.T) {
	for name, leave := range map[string]struct {
		how   func(hops *staticHops, svc *lb.Service, n int)
		stays bool
	}{
		"weight 0": {func(_ *staticHops, svc *lb.Service, n int) { svc.Backends[n].Weight = 0 }, true},
		"removed":  {func(_ *staticHops, svc *lb.Service, n int) { svc.Backends = svc.Backends[1-n : 2-n] }, true},
		"down":     {func(_ *staticHops, svc *lb.Service, n int) { svc.Backends[n].Down = true }, false},
		"lost":     {func(h *staticHops, svc *lb.Service, n int) { h.lost[svc.Backends[n].Address] = true }, false},
	} {
		for _, c := range natCases() {
			t.Run(name+" "+c.vip.String(), func(t *testing.T) {
				p, hops := newTestPlane(t)
				svc := c.twoBackends()
				update(t, p, svc)
				first := chosenBy(t, p, c)
				n := 0
				if first.server.Addr() != svc.Backends[0].Address {
					n = 1
				}
				leave.how(hops, svc, n)
				update(t, p, svc)
				in := c.fromClient(tcpACK).build()
				switch {
				case leave.stays:
					out := wantVerdict(t, p, in, xdpTX, "forward_nat")
					if end := endOf(c.vip.Protocol, out); end != first {
						t.Errorf("moved from %v to %v", first, end)
					}
				case c.vip.Protocol == lb.TCP:
					wantVerdict(t, p, in, xdpTX, "answer_reset")
					wantVerdict(t, p, in, xdpTX, "answer_reset")
					if end := chosenBy(t, p, c); end.server == first.server {
						t.Errorf("a new session went to %v", end)
					}
				default:
					out := wantVerdict(t, p, in, xdpTX, "forward_nat")
					if end := endOf(c.vip.Protocol, out); end.server == first.server {
						t.Errorf("stayed at %v", end)
					}
				}
			})
		}
	}
}

// retired is the service when one of its two backends gets no new flows any more.
func retired(svc *lb.Service, backend netip.AddrPort, removed bool) *lb.Service {
	after := *svc
	after.Backends = nil
	for _, b := range svc.Backends {
		if b.Address == backend.Addr() {
			b.Weight = 0
		}
		if b.Weight > 0 || !removed {
			after.Backends = append(after.Backends, b)
		}
	}
	return &after
}

// A client that repeats its SYN, as there was no answer, goes where new ones
// go by now: the backend of the first may be dead. Of the first session nothing is left.
// Who has been answered stays.
func TestNATOpensElsewhere(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		for _, how := range []struct{ keep, removed, answered bool }{
			{}, {removed: true}, {keep: true}, {keep: true, removed: true}, {answered: true}, {keep: true, answered: true},
		} {
			if c.vip.Protocol != lb.TCP {
				continue
			}
			t.Run(fmt.Sprintf("%s %+v", c.vip, how), func(t *testing.T) {
				c.keep = how.keep
				svc := c.twoBackends()
				update(t, p, svc)
				defer remove(t, p, c.vip)
				defer endAllSessions(t, p)
				first := chosenBy(t, p, c)
				if again := chosenBy(t, p, c); again != first {
					t.Errorf("moved from %v to %v, though nothing has changed", first, again)
				}
				c.backend = first.server
				answer := c.fromServer(tcpSYN|tcpACK, first.snat.Port()).build()
				if how.answered {
					wantVerdict(t, p, answer, xdpTX, "forward_nat_reply")
				}
				update(t, p, retired(svc, first.server, how.removed))
				second := chosenBy(t, p, c)
				if moved := second.server != first.server; moved == how.answered {
					t.Fatalf("first at %v, then at %v", first, second)
				}
				if !how.answered {
					wantExit(t, p, answer, xdpPass, "pass_not_vip")
				}
				if again := chosenBy(t, p, c); again != second {
					t.Errorf("moved from %v to %v", second, again)
				}
				if n := len(sessionsOf(t, p)); n != 2 {
					t.Errorf("%d entries of one session", n)
				}
			})
		}
	}
}

// A service without a usable backend refuses new sessions as other modes do.
func TestNATNoBackend(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, c := range natCases() {
		svc := c.service()
		svc.Backends = nil
		update(t, p, svc)
		wantExit(t, p, c.fromClient(tcpSYN).build(), xdpDrop, "drop_no_backend")
		refusing := *svc
		refusing.Unavailable = lb.Reject
		update(t, p, &refusing)
		exit := map[lb.Protocol]string{lb.TCP: "answer_reset", lb.UDP: "answer_unreachable"}[c.vip.Protocol]
		wantVerdict(t, p, c.fromClient(tcpSYN).build(), xdpTX, exit)
	}
}
