// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// wire is a foreign end that is played by the test.
type wire struct {
	*net.UDPConn
	t *testing.T
}

// listenWire receives a host's packets, and can send like a session.
func listenWire(t *testing.T, lab *netlab.Lab, host string, l link) *wire {
	t.Helper()
	return bindWire(t, lab, host, l, netip.AddrPortFrom(l.wildcard(), l.port()))
}

// bindWire sends from an address with a session's TTL.
func bindWire(t *testing.T, lab *netlab.Lab, host string, l link, at netip.AddrPort) *wire {
	t.Helper()
	w := &wire{t: t}
	err := lab.Do(host, func() error {
		config := net.ListenConfig{Control: l.prepare}
		conn, err := config.ListenPacket(context.Background(), l.network(), at.String())
		if err == nil {
			w.UDPConn = conn.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// receive returns the next packet, its source and hop limit.
func (w *wire) receive() (packet, netip.AddrPort, int) {
	w.t.Helper()
	if err := w.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		w.t.Fatal(err)
	}
	payload, control := make([]byte, 512), make([]byte, 512)
	n, controls, _, from, err := w.ReadMsgUDPAddrPort(payload, control)
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := parse(payload[:n])
	if err != nil {
		w.t.Fatal(err)
	}
	hops, _ := arrival(control[:controls])
	return p, from, hops
}

func (w *wire) say(to string, l link, payload []byte) {
	w.t.Helper()
	if _, err := w.WriteToUDPAddrPort(payload, netip.AddrPortFrom(netip.MustParseAddr(to), l.port())); err != nil {
		w.t.Fatal(err)
	}
}

// RFC 5881 §4 and §5: each session has a source port of its own out of the upper
// quarter, and TTL 255.
func TestSourcePorts(t *testing.T) {
	lab := newLab(t)
	near := startEnd(t, lab, "near")
	near.set(to(next4), to(next6), over("10.0.9.254"))
	v4, v6 := listenWire(t, lab, "next", link{}), listenWire(t, lab, "next", link{v6: true})
	var ports [2]uint16
	for i, w := range []*wire{v4, v6} {
		for n := range 3 {
			_, from, hops := w.receive()
			if n == 0 {
				ports[i] = from.Port()
			}
			if from.Port() != ports[i] || from.Port() < firstSource || hops != hopLimit {
				t.Errorf("packet %d from %s with TTL %d, before from port %d", n, from, hops, ports[i])
			}
		}
	}
	if ports[0] == ports[1] {
		t.Errorf("two sessions have port %d", ports[0])
	}
}

// Nonsense, and packets that only pretend to come from the peer, don't touch a
// session: neither on the peer's own link nor from behind a router.
func TestForgery(t *testing.T) {
	lab := newLab(t)
	near, next := both(t, lab)
	nearMark, nextMark := near.mark(), next.mark()

	random := rand.New(rand.NewPCG(1, 2))
	reset := packet{state: down, multiplier: 3, my: 99, desiredMinTx: ms, requiredMinRx: ms}
	forged := reset.bytes()
	for _, host := range []string{"router", "far"} {
		for _, l := range []link{{}, {v6: true}} {
			w := listenWire(t, lab, host, l)
			victim := near4
			if l.v6 {
				victim = near6
			}
			for range 2000 {
				w.say(victim, l, nonsense(random))
			}
			w.say(victim, l, forged[:])
		}
	}
	// On the peer's link: only its discriminator is missing.
	for range 50 {
		speak(t, lab, hopLimit).say(near4, link{}, forged[:])
	}
	// The peer's address with a TTL below the maximum: a host behind a router. With
	// an unknown discriminator: a former session.
	speak(t, lab, 64).say(near4, link{}, forged[:])
	reset.your = 12345
	forged = reset.bytes()
	speak(t, lab, hopLimit).say(near4, link{}, forged[:])
	if s := near.ask(next4); s.BFD != bgp.BFDUp {
		t.Errorf("%+v", s)
	}
	near.quiet(nearMark)
	next.quiet(nextMark)
}

// A pod of the node can send with the peer's address and TTL, but comes through another
// interface.
func TestOtherInterface(t *testing.T) {
	lab := newLab(t)
	near := startEnd(t, lab, "near")
	near.set(to(next4), to(next6))
	begins := packet{state: down, multiplier: 3, my: 99, desiredMinTx: ms, requiredMinRx: ms}
	b := begins.bytes()
	for _, l := range []link{{}, {v6: true}} {
		victim, peer := near4, next4
		if l.v6 {
			victim, peer = near6, next6
		}
		w := bindWire(t, lab, "pod", l, netip.AddrPortFrom(netip.MustParseAddr(peer), 50000))
		await.True(t, "the interface is seen", func() bool {
			w.say(victim, l, b[:])
			return strings.Contains(near.ask(peer).BFDReason, "another interface")
		})
	}
	near.quiet(0)
}

// speak opens a socket with the peer's address and a TTL.
func speak(t *testing.T, lab *netlab.Lab, hops int) *wire {
	t.Helper()
	w := &wire{t: t}
	err := lab.Do("next", func() (err error) {
		w.UDPConn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(next4)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	w.limit(unix.IPPROTO_IP, unix.IP_TTL, hops)
	return w
}

// limit sets the TTL of sent packets.
func (w *wire) limit(level, option, hops int) {
	w.t.Helper()
	var failed error
	raw, err := w.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, hops) })
	}
	if err = errors.Join(err, failed); err != nil {
		w.t.Fatal(err)
	}
}

// nonsense is a datagram that is random, or begins like a packet.
func nonsense(random *rand.Rand) []byte {
	b := make([]byte, random.IntN(80))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	if len(b) >= packetLength && random.IntN(2) == 0 {
		b[0], b[1], b[2], b[3] = version<<5, b[1]&^0x3f, 3, packetLength
	}
	return b
}
