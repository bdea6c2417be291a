// SPDX-License-Identifier: Apache-2.0

package packets_test

import (
	"bytes"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// wantAnswer puts a frame in that the balancer answers itself, and compares
// every byte of the answer.
func wantAnswer(t *testing.T, p *xdp.Unattached, in []byte, want frame, counter string) {
	t.Helper()
	wantBytes(t, p, in, want.unpadded(), xdpTX, counter)
}

// eachVIP runs a test for both families, untagged and in a VLAN.
func eachVIP(t *testing.T, test func(t *testing.T, vip lb.VIP)) {
	for _, address := range []netip.Addr{vip4, vip6} {
		for _, tag := range []uint16{0, 100} {
			vip := lb.VIP{Address: address, Port: 80, Protocol: lb.TCP, Segment: segment(tag)}
			t.Run(vip.String(), func(t *testing.T) { test(t, vip) })
		}
	}
}

func serviceAt(vip lb.VIP, backends int) *lb.Service {
	svc := manyBackends(vip.Address, backends)
	svc.VIP = vip
	return svc
}

// A packet that doesn't fit says so to its sender: the next-hop MTU leaves room for
// the tunnel's header, and the quote is as long as it may be.
func TestTooBig(t *testing.T) {
	p, hops := newTestPlane(t)
	eachVIP(t, func(t *testing.T, vip lb.VIP) {
		for _, c := range []struct {
			forward  lb.Forward
			backend  netip.Addr
			overhead int
		}{
			{lb.L2DSR, backend4, 0}, {lb.IPIP, backend4, 20}, {lb.IPIP, backend6, 40}, {lb.GUE, backend4, 32}, {lb.GUE, backend6, 52},
			{lb.VXLAN, backend4, 50}, {lb.VXLAN, backend6, 70}, {lb.Geneve, backend4, 50}, {lb.Geneve, backend6, 70},
		} {
			svc := serviceAt(vip, 0)
			svc.Forward = c.forward
			svc.Backends = reached(c.forward, []lb.Backend{{Address: c.backend, Port: 80, Weight: 1}})
			client := clientOf(vip.Address, 5000)
			f := longFrame(svc, client, 1400)
			length := len(packetOf(f))

			hops.mtu = length + c.overhead
			update(t, p, svc)
			wantVerdict(t, p, f.build(), xdpTX, "forward_"+c.forward.String())
			hops.mtu--
			update(t, p, svc)
			before := stats(t, p).Services[vip].Traffic
			wantAnswer(t, p, f.build(), answerFrame(f, vip.Address, client.Addr(), tooBig(f, vip.Address, uint32(length-1))), "answer_too_big")
			if after := stats(t, p).Services[vip].Traffic; after != before {
				t.Errorf("%s: a dropped packet was credited: %+v, before %+v", c.forward, after, before)
			}
			remove(t, p, vip)
		}
	})
}

// Links below the least MTU of IPv6: larger packets are answered with that one, and
// those that couldn't be made smaller get no answer. IPv4 goes down to 68.
func TestTooBigForSmallLinks(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, c := range []struct {
		vip     netip.Addr
		mtu     int
		payload int
		quoted  uint32 // in the answer; 0: none
	}{
		{vip6, 1200, 1400, 1280},
		{vip6, 1279, 1216, 0}, // a packet of 1276 bytes
		{vip6, 1200, 1216, 0},
		{vip4, 300, 400, 300},
		{vip4, 60, 400, 68},
		{vip4, 60, 8, 0},
	} {
		svc := manyBackends(c.vip, 1)
		client := clientOf(c.vip, 5000)
		f := longFrame(svc, client, c.payload)
		in := packetOf(f)
		hops.mtu = min(c.mtu, len(in)-1)
		update(t, p, svc)
		if c.quoted == 0 {
			wantExit(t, p, f.build(), xdpDrop, "drop_too_big")
			continue
		}
		m := message{kind: 3, code: 4, rest: c.quoted, body: in[:min(len(in), 548)]}
		if c.vip.Is6() {
			m = message{kind: 2, rest: c.quoted, body: in[:1232]}
		}
		wantAnswer(t, p, f.build(), answerFrame(f, c.vip, client.Addr(), m), "answer_too_big")
	}
}

// Packets that must not be answered are dropped: ICMP errors, later fragments,
// packets from or to many (RFC 1812 §4.3.2.7, RFC 4443 §2.4).
func TestNoAnswer(t *testing.T) {
	p, hops := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		svc := manyBackends(vip, 3)
		update(t, p, svc)
		client := clientOf(vip, 5000)
		parts := split(packetOf(longFrame(svc, client, 2600)), 9, 1304)
		run(t, p, onWire(svc.Segment, parts[0]))
		hops.mtu = 1290
		update(t, p, svc)
		m := errorsOf(vip)[0]
		m.body = packetOf(longFrame(svc, client, 1304))
		quoted := serverFrame(svc.VIP, client)
		quoted.payload = string(m.body)
		m.body = packetOf(quoted)
		broadcast := longFrame(svc, client, 1400)
		broadcast.destination = lb.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		frames := [][]byte{
			icmpFrame(router(vip), vip, lb.Segment{}, m).build(),
			onWire(svc.Segment, parts[1]),
			broadcast.build(),
		}
		for _, source := range []string{"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"} {
			if a := netip.MustParseAddr(source); a.Is4() == vip.Is4() {
				frames = append(frames, longFrame(svc, netip.AddrPortFrom(a, 5000), 1400).build())
			}
		}
		for _, in := range frames {
			wantExit(t, p, in, xdpDrop, "drop_too_big")
		}
		hops.mtu = 1500
	}
}

// Ping is answered while a service of the address has a usable backend, in its
// segment and nowhere else.
func TestPing(t *testing.T) {
	p, _ := newTestPlane(t)
	eachVIP(t, func(t *testing.T, vip lb.VIP) {
		client := clientOf(vip.Address, 1).Addr()
		m := echoRequest[family(vip.Address)]
		asked := icmpFrame(client, vip.Address, vip.Segment, m)
		wantExit(t, p, asked.build(), xdpPass, "pass_not_vip")

		svc, empty := serviceAt(vip, 3), serviceAt(vip, 0)
		empty.Port = 81
		update(t, p, empty)
		wantExit(t, p, asked.build(), xdpDrop, "drop_no_backend")
		update(t, p, svc)
		wantAnswer(t, p, asked.build(), echoFrame(asked, m), "answer_echo")
		remove(t, p, empty.VIP)
		wantAnswer(t, p, asked.build(), echoFrame(asked, m), "answer_echo")
		without := *svc
		without.Backends = nil
		update(t, p, &without)
		wantExit(t, p, asked.build(), xdpDrop, "drop_no_backend")
		remove(t, p, vip)
		wantExit(t, p, asked.build(), xdpPass, "pass_not_vip")
	})
}

// echoFrame is a reply that is the request but for addresses, type and TTL, all checksums
// recomputed.
func echoFrame(asked frame, m message) frame {
	from, to := addressesOf(asked.ip[0])
	m.kind = echoReply[family(to)]
	f := icmpFrame(to, from, lb.Segment{}, m)
	f.destination, f.source, f.tags = asked.source, asked.destination, asked.tags
	switch ip := f.ip[0].(type) {
	case *layers.IPv4:
		ip.TTL = 64
	case *layers.IPv6:
		ip.HopLimit = 64
	}
	return f
}

func addressesOf(ip gopacket.SerializableLayer) (from, to netip.Addr) {
	flow := ip.(gopacket.NetworkLayer).NetworkFlow()
	from, _ = netip.AddrFromSlice(flow.Src().Raw())
	to, _ = netip.AddrFromSlice(flow.Dst().Raw())
	return from, to
}

// A long ping comes back fragment by fragment.
func TestFragmentedPing(t *testing.T) {
	p, _ := newTestPlane(t)
	eachVIP(t, func(t *testing.T, vip lb.VIP) {
		update(t, p, serviceAt(vip, 3))
		client := clientOf(vip.Address, 1).Addr()
		m := echoRequest[family(vip.Address)]
		m.body = bytes.Repeat(m.body, 100)
		asked := icmpFrame(client, vip.Address, vip.Segment, m)
		answer := echoFrame(asked, m)
		want := split(packetOf(answer), 77, 1000)
		for n, part := range split(packetOf(asked), 77, 1000) {
			link := answer.build()[:atIP+4*len(answer.tags)]
			want := slices.Concat(link, want[n])
			if verdict, out := run(t, p, onWire(vip.Segment, part)); verdict != xdpTX || !bytes.Equal(out[:len(want)], want) {
				t.Errorf("fragment %d: verdict %d:\n%s", n, verdict, cmp.Diff(dump(want), dump(out)))
			}
		}
	})
}

// A service without backends that rejects: UDP gets "port unreachable", pings
// "host unreachable".
func TestUnreachable(t *testing.T) {
	p, _ := newTestPlane(t)
	eachVIP(t, func(t *testing.T, vip lb.VIP) {
		vip.Protocol = lb.UDP
		svc := serviceAt(vip, 0)
		svc.Unavailable = lb.Reject
		update(t, p, svc)
		client := clientOf(vip.Address, 6000)
		is4 := vip.Address.Is4()
		port, host, quote := message{kind: 1, code: 4}, message{kind: 1, code: 3}, 1280-48
		if is4 {
			port, host, quote = message{kind: 3, code: 3}, message{kind: 3, code: 1}, 576-28
		}
		for length := range 40 { // all remainders of a checksum's units
			f := clientFrame(vip, client)
			f.payload = f.payload[:length%len(f.payload)]
			port.body = packetOf(f)
			wantAnswer(t, p, f.build(), answerFrame(f, vip.Address, client.Addr(), port), "answer_unreachable")
		}
		f := longFrame(svc, client, 1400)
		port.body = packetOf(f)[:quote]
		wantAnswer(t, p, f.build(), answerFrame(f, vip.Address, client.Addr(), port), "answer_unreachable")
		padded := append(clientFrame(vip, client).build(), make([]byte, 20)...)
		port.body = packetOf(clientFrame(vip, client))
		wantAnswer(t, p, padded, answerFrame(clientFrame(vip, client), vip.Address, client.Addr(), port), "answer_unreachable")

		ping := icmpFrame(client.Addr(), vip.Address, vip.Segment, echoRequest[family(vip.Address)])
		host.body = packetOf(ping)
		wantAnswer(t, p, ping.build(), answerFrame(ping, vip.Address, client.Addr(), host), "answer_unreachable")

		wantExit(t, p, errorAbout(vip, client, router(vip.Address)).build(), xdpDrop, "drop_no_backend")
		remove(t, p, vip)
	})
}

// resetOf is the reset of RFC 9293 §3.10.7.1.
func resetOf(asked frame, vip lb.VIP, client netip.AddrPort) frame {
	in := asked.ip[1].(*layers.TCP)
	from := lb.VIP{Address: client.Addr(), Port: client.Port(), Protocol: lb.TCP}
	f := frame{destination: asked.source, source: asked.destination, tags: asked.tags,
		ip: transport(from, netip.AddrPortFrom(vip.Address, vip.Port))}
	ownHeader(f.ip[0], 0)
	out := f.ip[1].(*layers.TCP)
	out.SYN, out.RST, out.Window = false, true, 0
	if in.ACK {
		out.Seq = in.Ack
		return f
	}
	out.ACK = true
	out.Ack = in.Seq + uint32(len(asked.payload))
	if in.SYN {
		out.Ack++
	}
	if in.FIN {
		out.Ack++
	}
	return f
}

// A service without backends that rejects resets TCP, and never a reset.
func TestReset(t *testing.T) {
	p, _ := newTestPlane(t)
	eachVIP(t, func(t *testing.T, vip lb.VIP) {
		svc := serviceAt(vip, 0)
		svc.Unavailable = lb.Reject
		update(t, p, svc)
		client := clientOf(vip.Address, 6000)
		for name, set := range map[string]func(*layers.TCP){
			"syn": func(h *layers.TCP) { h.SYN, h.Seq = true, 0xfffffffe },
			"options": func(h *layers.TCP) {
				h.SYN, h.Options = true, []layers.TCPOption{{OptionType: 2, OptionLength: 4, OptionData: []byte{5, 180}}}
			},
			"ack":     func(h *layers.TCP) { h.ACK, h.Seq, h.Ack = true, 77, 0x01020304 },
			"fin":     func(h *layers.TCP) { h.FIN, h.Seq = true, 1000 },
			"fin ack": func(h *layers.TCP) { h.FIN, h.ACK, h.Ack = true, true, 9 },
			"none":    func(h *layers.TCP) { h.Seq = 5 },
		} {
			t.Run(name, func(t *testing.T) {
				f := clientFrame(vip, client)
				h := f.ip[1].(*layers.TCP)
				h.SYN = false
				set(h)
				wantAnswer(t, p, f.build(), resetOf(f, vip, client), "answer_reset")
				h.RST = true
				wantExit(t, p, f.build(), xdpDrop, "drop_no_backend")
			})
		}
		f := clientFrame(vip, client)
		f.payload = f.payload[:30]
		bad := f.build()
		at := atIP + 4*len(f.tags) + map[bool]int{true: 20, false: 40}[vip.Address.Is4()] + 12
		wantExit(t, p, changedTo(bytes.Clone(bad), at, 0x40), xdpDrop, "drop_no_backend") // no whole header
		wantExit(t, p, changedTo(bytes.Clone(bad), at, 0xf0), xdpDrop, "drop_no_backend") // longer than the packet
		wantExit(t, p, onWire(vip.Segment, split(packetOf(f), 5, 24)[0]), xdpDrop, "drop_no_backend")
		if vip.Address.Is6() && len(f.tags) == 0 {
			wantAnswer(t, p, chain(f.build(), 0, 60), resetOf(f, vip, client), "answer_reset")
		}
		svc.Unavailable = lb.Drop
		update(t, p, svc)
		wantExit(t, p, bad, xdpDrop, "drop_no_backend")
		remove(t, p, vip)
	})
}

// Answers are limited for each kind and processor: never more than a burst and a
// second's rate, and one kind leaves the others alone.
func TestAnswerLimit(t *testing.T) {
	p, hops := newTestPlane(t)
	empty := manyBackends(vip4, 0)
	empty.Unavailable = lb.Reject
	update(t, p, empty)
	hops.mtu = 1280
	svc := manyBackends(vip6, 3)
	update(t, p, svc)
	syn, large := flowPacket(empty.VIP, client4), longFrame(svc, client6, 1400).build()

	begin := coarseClock(t)
	moved := exits(t, p, func() {
		for range 3000 {
			run(t, p, syn)
		}
	})
	most := (1001 + uint64((coarseClock(t) - begin).Milliseconds())) * uint64(runtime.NumCPU())
	if moved["answer_reset"] == 0 || moved["answer_reset"] > most || moved["answer_reset"]+moved["drop_answer_limit"] != 3000 {
		t.Errorf("counters %v: want at most %d answers", moved, most)
	}

	for _, c := range []struct {
		kind table.BalancerRate
		in   []byte
		exit string
	}{
		{table.BalancerRateRATE_RESET, syn, "answer_reset"},
		{table.BalancerRateRATE_TOO_BIG, large, "answer_too_big"},
		{table.BalancerRateRATE_ECHO, ping(client6.Addr(), vip6).build(), "answer_echo"},
		{table.BalancerRateRATE_QUOTED, errorAbout(svc.VIP, client6, router(vip6)).build(), "forward_l2dsr"},
	} {
		setLimit(t, p, c.kind, 0)
		wantVerdict(t, p, c.in, xdpTX, c.exit)
		setLimit(t, p, c.kind, ^uint64(0))
		wantExit(t, p, c.in, xdpDrop, "drop_answer_limit")
	}
	// Errors about other addresses aren't the balancer's.
	other := lb.VIP{Address: svc.Address.Next(), Port: 80, Protocol: lb.TCP}
	wantExit(t, p, errorAbout(other, client6, router(vip6)).build(), xdpPass, "pass_not_vip")
}

// coarseClock is the clock that limits read. It has ticks.
func coarseClock(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	return time.Duration(now.Nano())
}

// A flood of packets that are too big for one service leaves the answers of others, on the same
// processor.
func TestTooBigLimitOfAService(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	var one unix.CPUSet
	one.Set(0)
	must(t, unix.SchedSetaffinity(0, &one))
	p, hops := newTestPlane(t)
	hops.mtu = 1280
	flooded, other := manyBackends(vip4, 3), manyBackends(vip6, 3)
	update(t, p, flooded)
	update(t, p, other)
	large := longFrame(flooded, client4, 1400).build()
	frames := many(4000, func(int) []byte { return large })
	begin := coarseClock(t)
	moved, _ := offer(t, p, frames...)
	took := coarseClock(t) - begin
	most := 1001 + uint64(took.Milliseconds())
	if n := moved["answer_too_big"]; n < 1000 || n > most || n+moved["drop_answer_limit"] != 4000 {
		t.Errorf("counters %v in %s: want 1000 to %d answers", moved, took, most)
	}
	wantVerdict(t, p, longFrame(other, client6, 1400).build(), xdpTX, "answer_too_big")
}

// setLimit says until when a kind of answer is used up, on every processor.
func setLimit(t *testing.T, p *xdp.Unattached, kind table.BalancerRate, until uint64) {
	t.Helper()
	must(t, p.Tables.Maps.Rates.Put(kind, slices.Repeat([]uint64{until}, ebpf.MustPossibleCPU())))
}

// Two balancers that take each other for a backend don't pass packets to and
// fro.
func TestNoLoop(t *testing.T) {
	p, _ := newTestPlane(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		svc := manyBackends(vip, 1)
		update(t, p, svc)
		f := clientFrame(svc.VIP, clientOf(vip, 7000))
		f.source = macOf(svc.Backends[0].Address)
		wantExit(t, p, f.build(), xdpDrop, "drop_loop")
		svc.Backends[0].Segment = segment(200) // a router with one MAC address in many VLANs
		update(t, p, svc)
		wantVerdict(t, p, f.build(), xdpTX, "forward_l2dsr")
	}
}
