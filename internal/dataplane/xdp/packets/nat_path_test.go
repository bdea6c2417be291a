// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
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

// wantFragments runs the fragments of a frame's packet, and checks the output.
func wantFragments(t *testing.T, p *xdp.Unattached, in, want frame, id uint32, size int, exit string) {
	t.Helper()
	fragments := inFragments(want, id, size)
	for i, fragment := range inFragments(in, id, size) {
		wantBytes(t, p, fragment, fragments[i], xdpTX, exit)
	}
}

// Fragments follow their first one in both directions: that one gets ports and the
// whole packet's checksum, all get the addresses.
func TestNATFragments(t *testing.T) {
	id := uint32(0)
	runScenarios(t, scenario{"", natCases(), steps{serve(natCase.service), newSession, func(s *scene) {
		s.payload = strings.Repeat("fragments", 150)
		for _, size := range []int{24, 512, 1024} {
			id++
			wantFragments(s.t, s.p, s.fromClient(tcpACK), s.atServer(tcpACK, s.port), id, size, "forward_nat")
			wantFragments(s.t, s.p, s.fromServer(tcpACK, s.port), s.atClient(tcpACK), id, size, "forward_nat_reply")
		}
		wantExit(s.t, s.p, inFragments(s.fromServer(tcpACK, s.port), 99, 512)[1], xdpPass, "pass_fragment")
	}}})
}

// Options and extension headers are carried along.
func TestNATOptions(t *testing.T) {
	runScenarios(t, scenario{"", natCases(), steps{serve(natCase.service), newSession, func(s *scene) {
		in, want := s.fromClient(tcpACK), s.atServer(tcpACK, s.port)
		if s.vip.Address.Is6() {
			wantBytes(s.t, s.p, chain(in.build(), 0, 60, 60), chain(want.build(), 0, 60, 60), xdpTX, "forward_nat")
			return
		}
		for _, f := range []frame{in, want} {
			f.ip[0].(*layers.IPv4).Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}
		wantFrame(s.t, s.p, in, want, xdpTX, "forward_nat")
	}}})
}

// A backend is a client like any other, also of itself: its packets to the VIP may
// go back to the station that they came from.
func TestNATHairpin(t *testing.T) {
	runScenarios(t, scenario{"", natCases(), steps{
		func(s *scene) { s.client, s.via = netip.AddrPortFrom(s.backend.Addr(), 50000), macOf(s.backend.Addr()) },
		serve(natCase.service), newSession, send("cS", "sSA"),
	}})
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
	must(t, err)
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

// place is the number of the session's backend.
func (s *scene) place(svc *lb.Service) int {
	return slices.IndexFunc(svc.Backends, func(b lb.Backend) bool { return b.ID() == s.backend })
}

func weightZero(s *scene, svc *lb.Service) { svc.Backends[s.place(svc)].Weight = 0 }

func removed(s *scene, svc *lb.Service) {
	svc.Backends = slices.Delete(svc.Backends, s.place(svc), s.place(svc)+1)
}

// Sessions stay on a backend that gets no new ones, or has left; not on one that is
// down or can't be reached: there TCP ends, and UDP goes elsewhere.
func TestNATBackendsRemoved(t *testing.T) {
	var all []scenario
	for name, leave := range map[string]struct {
		how   func(s *scene, svc *lb.Service)
		after steps
	}{
		"weight 0": {weightZero, steps{send("cA")}},
		"removed":  {removed, steps{send("cA")}},
		"down": {
			func(s *scene, svc *lb.Service) { svc.Backends[s.place(svc)].Down = true },
			steps{ifTCP(exit("answer_reset", "cA", "cA")), otherBackend},
		},
		"lost": {
			func(s *scene, _ *lb.Service) { s.hops.lost[s.backend.Addr()] = true },
			steps{ifTCP(exit("answer_reset", "cA", "cA")), otherBackend},
		},
	} {
		begun := steps{serve(natCase.twoBackends), newSessionOf, change(leave.how)}
		all = append(all, scenario{name, natCases(), append(begun, leave.after...)})
	}
	runScenarios(t, all...)
}

// A client that repeats its SYN, as there was no answer, goes where new ones
// go by now: the backend of the first may be dead. Of the first session nothing is left.
// A session that was answered stays.
func TestNATRepeatedSYN(t *testing.T) {
	var all []scenario
	for name, leave := range map[string]func(s *scene, svc *lb.Service){"weight 0": weightZero, "removed": removed} {
		all = append(all, scenario{name + ", unanswered", tcpModes(), steps{
			serve(natCase.twoBackends), newSessionOf, change(leave),
			func(s *scene) {
				first := *s
				otherBackend(s)
				first.wantExit("sSA", "pass_not_vip")
			},
			send("cS"), entries(2),
		}})
	}
	runScenarios(t, append(all, scenario{"answered", tcpModes(), steps{
		serve(natCase.twoBackends), newSessionOf, send("sSA"), change(weightZero), send("cS", "cS"), entries(2),
	}})...)
}

// A service without a usable backend refuses new sessions as other modes do.
func TestNATNoBackend(t *testing.T) {
	runScenarios(t, scenario{"", natCases(), steps{
		serve(natCase.service, func(_ *scene, svc *lb.Service) { svc.Backends = nil }), exit("drop_no_backend", "cS"),
		change(func(_ *scene, svc *lb.Service) { svc.Unavailable = lb.Reject }),
		func(s *scene) {
			exit := map[lb.Protocol]string{lb.TCP: "answer_reset", lb.UDP: "answer_unreachable"}[s.vip.Protocol]
			wantVerdict(s.t, s.p, s.fromClient(tcpSYN).build(), xdpTX, exit)
		},
	}})
}
