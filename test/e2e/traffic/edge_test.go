// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Edge cases apart from connections that fit: 1500 bytes
// on every link, tunnels included, so that clients and servers have to find out
// what passes.
func TestEdges(t *testing.T) {
	t.Parallel()
	for _, forward := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve} {
		t.Run(forward.String(), func(t *testing.T) {
			t.Parallel()
			topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: forward, MTU: 1500, Balancers: 3, Servers: 4})
			if err != nil {
				t.Fatal(err)
			}
			l := bringUp(t, "edges-"+forward.String(), topology)
			harness.EachFamily(t, func(t *testing.T, vip string) {
				t.Run("upload", func(t *testing.T) { l.checkDiscovery(t, forward, vip) })
				t.Run("long datagrams", func(t *testing.T) { l.checkLongDatagrams(t, vip) })
				t.Run("ping", func(t *testing.T) { l.checkPing(t, vip) })
			})
			t.Run("small link", l.checkSmallLink)
			t.Run("unavailable", l.checkUnavailable)
		})
	}
}

// checkDiscovery uploads in segments of 1500 bytes: where a tunnel leaves less,
// TCP learns it from the balancers' answers.
func (l *lab) checkDiscovery(t *testing.T, forward lb.Forward, vip string) {
	before := l.Totals(t)
	l.upload(t, "client", vip, 1<<20)
	after := l.Totals(t).Minus(before)
	after.CheckClean(t)
	if answered := after.Exit("answer_too_big"); (answered > 0) != (forward != lb.L2DSR) {
		t.Errorf("%d packets were too big:\n%s", answered, after)
	}
}

// checkPing pings the address, with packets and with fragments.
func (l *lab) checkPing(t *testing.T, vip string) {
	for _, size := range []int{0, 56, 1400, 4000} {
		if err := l.ping(t, vip, size); err != nil {
			t.Errorf("ping with %d bytes: %v", size, err)
		}
	}
}

// ping returns when an echo request was answered, or why it wasn't.
func (l *lab) ping(t *testing.T, vip string, size int) error {
	t.Helper()
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if netip.MustParseAddr(vip).Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	conn, err := l.Dial(t.Context(), "client", network, vip)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	message := append([]byte{request, 0, 0, 0, 0x12, 0x34, 0, 1}, bytes.Repeat([]byte("p"), size)...)
	sum := internetChecksum(message) // of ICMPv6 the kernel makes it
	message[2], message[3] = byte(sum>>8), byte(sum)
	if _, err := conn.Write(message); err != nil {
		return err
	}
	answer := make([]byte, 1<<16)
	for {
		n, _, err := conn.(net.PacketConn).ReadFrom(answer)
		if err != nil {
			return err
		}
		switch {
		case answer[0] == reply && bytes.Equal(answer[4:n], message[4:]):
			return nil
		case answer[0] == 3 || answer[0] == 1:
			return errUnreachable
		}
	}
}

var errUnreachable = errors.New("unreachable")

// internetChecksum is that of RFC 1071.
func internetChecksum(data []byte) uint16 {
	sum := uint32(0)
	for i, b := range data {
		sum += uint32(b) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// checkUnavailable takes all backends away from services that reject.
func (l *lab) checkUnavailable(t *testing.T) {
	l.Configure(t, l.Changed(func(s *lb.Service) { s.Backends, s.Unavailable = nil, lb.Reject }))
	defer l.Configure(t, l.Topology.Services)
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		if _, err := l.Get(t.Context(), "client", harness.Origin(vip)); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: a request ended with %v, want a refusal", vip, err)
		}
		port := 32000
		harness.Until(t, "a new flow of datagrams is refused", func() bool {
			port++ // those that were seen while flows are learned stay
			conn := l.Sockets(t, "client", vip, []int{port})[port]
			defer conn.Close()
			_, err := exchangeOnce(conn, []byte("x"))
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		if err := l.ping(t, vip, 8); !errors.Is(err, errUnreachable) {
			t.Errorf("%s: a ping ended with %v, want unreachable", vip, err)
		}
	}
}
