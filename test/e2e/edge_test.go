// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// What the Internet asks of an address beside connections that fit: 1500 bytes
// on every link, tunnels included, so that clients and servers have to find out
// what passes.
func TestEdges(t *testing.T) {
	t.Parallel()
	for _, forward := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve} {
		t.Run(forward.String(), func(t *testing.T) {
			topology, err := netlab.ECMP(netlab.ECMPOptions{Fairlead: "fairlead", Forward: forward, MTU: 1500, Balancers: 3, Servers: 4})
			if err != nil {
				t.Fatal(err)
			}
			l := bringUp(t, "edges-"+forward.String(), topology)
			for family, vip := range map[string]string{"ipv4": vip4, "ipv6": vip6} {
				t.Run(family, func(t *testing.T) {
					t.Run("upload", func(t *testing.T) { l.checkDiscovery(t, forward, vip) })
					t.Run("long datagrams", func(t *testing.T) { l.checkLongDatagrams(t, vip) })
					t.Run("ping", func(t *testing.T) { l.checkPing(t, vip) })
				})
			}
			t.Run("small link", l.checkSmallLink)
			t.Run("unavailable", l.checkUnavailable)
		})
	}
}

// checkDiscovery uploads in segments of 1500 bytes: where a tunnel leaves less,
// TCP learns it from the balancers' answers.
func (l *lab) checkDiscovery(t *testing.T, forward lb.Forward, vip string) {
	const size = 1 << 20
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	before := l.books(t)
	said := l.run(t, "client", "curl", "-sS", "--fail", "--max-time", "5", "-o", "/dev/null",
		"-w", "%{http_code} %{size_upload}", "--data-binary", "@"+body, origin(vip))
	if want := fmt.Sprintf("200 %d", size); said != want {
		t.Errorf("status and bytes sent: %s, want %s", said, want)
	}
	after := l.books(t).minus(before)
	after.checkClean(t)
	if answered := after.exit("answer_too_big"); (answered > 0) != (forward != lb.L2DSR) {
		t.Errorf("%d packets were too big:\n%s", answered, after)
	}
}

// checkLongDatagrams sends datagrams that are fragmented, and their echoes too.
// The first may be lost to the discovery of the MTU.
func (l *lab) checkLongDatagrams(t *testing.T, vip string) {
	for _, size := range []int{1473, 4000, 30000} {
		for port := 30000; port < 30004; port++ {
			l.wantEcho(t, vip, port, size)
		}
	}
}

// wantEcho sends a datagram again and again until it has come back.
func (l *lab) wantEcho(t *testing.T, vip string, port, size int) {
	t.Helper()
	conn := l.sockets(t, "client", vip, []int{port})[port]
	defer conn.Close()
	sent := bytes.Repeat([]byte("datagram"), size/8+1)[:size]
	until(t, fmt.Sprintf("%s echoes %d bytes", vip, size), func() bool {
		echo, err := exchangeOnce(conn, sent)
		_, echoed, _ := bytes.Cut(echo, []byte(" "))
		if err == nil && !bytes.Equal(echoed, sent) {
			t.Fatalf("%d bytes came back as %d others", size, len(echo))
		}
		return err == nil
	})
}

// exchangeOnce sends a datagram and waits a moment for another.
func exchangeOnce(conn net.Conn, sent []byte) ([]byte, error) {
	if err := conn.SetDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(sent); err != nil {
		return nil, err
	}
	answer := make([]byte, 1<<16)
	n, err := conn.Read(answer)
	return answer[:n], err
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

// checkSmallLink makes the last link to the client so small that a server's
// answer doesn't fit although the request did: the router says so to the VIP, and
// only the server that sent the answer can help it.
func (l *lab) checkSmallLink(t *testing.T) {
	l.run(t, "router", "ip", "link", "set", "dev", "eth0", "mtu", "1300")
	defer l.run(t, "router", "ip", "link", "set", "dev", "eth0", "mtu", "1500")
	for vip, size := range map[string]int{vip4: 1300 - 28, vip6: 1300 - 48} {
		for port := 31000; port < 31016; port++ {
			l.wantEcho(t, vip, port, size)
		}
	}
}

// checkUnavailable takes all backends away from services that reject.
func (l *lab) checkUnavailable(t *testing.T) {
	l.configure(t, l.changed(func(s *lb.Service) { s.Backends, s.Unavailable = nil, lb.Reject }))
	defer l.configure(t, l.topology.Services)
	for _, vip := range []string{vip4, vip6} {
		if _, err := l.get(t.Context(), "client", origin(vip)); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: a request ended with %v, want a refusal", vip, err)
		}
		port := 32000
		until(t, "a new flow of datagrams is refused", func() bool {
			port++ // those that were seen while flows are learned stay
			conn := l.sockets(t, "client", vip, []int{port})[port]
			defer conn.Close()
			_, err := exchangeOnce(conn, []byte("x"))
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		if err := l.ping(t, vip, 8); !errors.Is(err, errUnreachable) {
			t.Errorf("%s: a ping ended with %v, want that nobody is there", vip, err)
		}
	}
}
