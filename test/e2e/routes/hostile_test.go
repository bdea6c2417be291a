// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// hostileASN is the AS number of all misbehaving peers.
const hostileASN = 64999

// hostilePeer is a host that has a misbehaving BGP speaker at each of its addresses.
type hostilePeer struct {
	t     *testing.T
	mu    sync.Mutex
	calls map[netip.Addr][]time.Time
}

// manner is how a peer treats who calls it. The connection is closed afterwards.
type behaviour func(c net.Conn)

// addHostilePeers adds a host with these addresses to a topology. Its role is not client, as
// a client's packets would be counted as balanced ones; as a client it sends no more at a
// time than an interface holds, so that its routes push out no packet of clients.
func addHostilePeers(topology *netlab.Topology, addresses []netip.Addr) {
	host := netlab.Host{
		Name: "rogue", Role: netlab.Reflector, Interfaces: []netlab.Interface{{Name: "eth0"}},
		Sysctls: map[string]string{"net.ipv4.tcp_wmem": harness.SendBuffer},
	}
	for _, a := range addresses {
		host.Interfaces[0].Addresses = append(host.Interfaces[0].Addresses, netip.PrefixFrom(a, 24))
	}
	topology.Hosts = append(topology.Hosts, host)
	wires := topology.Host("switch")
	wires.Interfaces = append(wires.Interfaces, netlab.Interface{Name: host.Name})
	topology.Links = append(topology.Links, netlab.Link{
		A: netlab.End{Host: host.Name, Interface: "eth0"}, B: netlab.End{Host: "switch", Interface: host.Name},
	})
}

// unleash has the addresses of the host misbehave until the test ends.
func (l *lab) startHostilePeers(t *testing.T, manners map[netip.Addr]behaviour) *hostilePeer {
	t.Helper()
	r := &hostilePeer{t: t, calls: map[netip.Addr][]time.Time{}}
	var listener net.Listener
	err := l.Do("rogue", func() (err error) {
		listener, err = net.Listen("tcp4", ":179")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	open := map[net.Conn]bool{}
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		r.mu.Unlock()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			at := netip.MustParseAddrPort(c.LocalAddr().String()).Addr()
			r.mu.Lock()
			r.calls[at] = append(r.calls[at], time.Now())
			open[c] = true
			r.mu.Unlock()
			serving.Go(func() {
				manners[at](c)
				_ = c.Close()
				r.mu.Lock()
				delete(open, c)
				r.mu.Unlock()
			})
		}
	})
	return r
}

// sendNoise sends random bytes to a balancer until the test ends: to the ports of
// BFD for peers on the link and beyond, and to BGP's.
func (l *lab) sendNoise(t *testing.T, balancer string) {
	t.Helper()
	var conns []net.Conn
	for _, to := range []struct{ network, port string }{{"udp4", "3784"}, {"udp4", "4784"}, {"udp4", "179"}} {
		c, err := l.Dial(t.Context(), "rogue", to.network, net.JoinHostPort(l.Address(balancer).String(), to.port))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	done, sending := make(chan struct{}), sync.WaitGroup{}
	sending.Go(func() {
		for ticker := time.NewTicker(time.Millisecond); ; {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			for _, c := range conns {
				_, _ = c.Write(random(rand.IntN(100))) // some are not listened at
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		sending.Wait()
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

// connectedAt returns when an address was connected to.
func (r *hostilePeer) connectedAt(at netip.Addr) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls[at])
}

// Types of BGP messages (RFC 4271 §4.1).
const (
	bgpOpen = iota + 1
	bgpUpdate
	bgpNotification
	bgpKeepalive
)

// message is one of BGP, well-formed outside.
func message(kind byte, body []byte) []byte {
	b := bytes.Repeat([]byte{0xff}, 16)
	b = binary.BigEndian.AppendUint16(b, uint16(19+len(body)))
	return append(append(b, kind), body...)
}

// openBody is the body of a correct OPEN of hostileASN: version, AS, hold time,
// identifier and capabilities (IPv4 unicast, four-octet AS numbers).
func openBody() []byte {
	return []byte{
		4, hostileASN >> 8, hostileASN & 0xff, 0, 3, 192, 0, 2, 99,
		14, 2, 12, 1, 4, 0, 1, 0, 1, 65, 4, 0, 0, hostileASN >> 8, hostileASN & 0xff,
	}
}

// altered is the body with other bytes from an offset on.
func altered(offset int, with ...byte) []byte {
	body := openBody()
	copy(body[offset:], with)
	return body
}

// says sends something and listens until the peer hangs up.
func send(what ...[]byte) behaviour {
	return func(c net.Conn) {
		_, _ = c.Write(bytes.Join(what, nil))
		_, _ = io.Copy(io.Discard, c)
	}
}

// establishes behaves until the session is established, says something, and
// listens, or hangs up.
func establish(hangUp bool, what func(c net.Conn)) behaviour {
	return func(c net.Conn) {
		if _, err := c.Write(append(message(bgpOpen, openBody()), message(bgpKeepalive, nil)...)); err != nil {
			return
		}
		for {
			header := make([]byte, 19)
			if _, err := io.ReadFull(c, header); err != nil {
				return
			}
			rest := int64(binary.BigEndian.Uint16(header[16:])) - 19
			if _, err := io.CopyN(io.Discard, c, rest); err != nil {
				return
			}
			if header[18] == bgpKeepalive {
				break
			}
		}
		what(c)
		if !hangUp {
			_, _ = io.Copy(io.Discard, c)
		}
	}
}

// random is bytes without sense; each call gives others.
func random(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// flood sends routes of so many hosts in messages of the greatest size.
func flood(routes int) func(c net.Conn) {
	attributes := []byte{
		0x40, 1, 1, 0, // ORIGIN IGP
		0x40, 2, 6, 2, 1, 0, 0, hostileASN >> 8, hostileASN & 0xff, // AS_PATH
		0x40, 3, 4, 10, 0, 2, 200, // NEXT_HOP
	}
	const perMessage = 800
	return func(c net.Conn) {
		for sent := 0; sent < routes; sent += perMessage {
			body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes)))
			body = append(body, attributes...)
			for n := range perMessage {
				body = append(body, 32)
				body = binary.BigEndian.AppendUint32(body, uint32(20<<24+sent+n))
			}
			if _, err := c.Write(message(bgpUpdate, body)); err != nil {
				return
			}
			if sent%(16*perMessage) == 0 {
				_, _ = c.Write(message(bgpKeepalive, nil))
			}
		}
	}
}

// write is a step of establishes.
func write(what ...[]byte) func(c net.Conn) {
	return func(c net.Conn) { _, _ = c.Write(bytes.Join(what, nil)) }
}

// sendHalf receives an OPEN, answers with the first half of a message, and closes.
func sendHalf(what []byte) behaviour {
	return func(c net.Conn) {
		if _, err := io.ReadAtLeast(c, make([]byte, 4096), 19); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		_, _ = c.Write(what[:len(what)/2])
	}
}
