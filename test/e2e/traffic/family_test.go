// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// checkLongDatagrams sends datagrams that are fragmented, as are their echoes. The
// first may be lost to path MTU discovery.
func (l *lab) checkLongDatagrams(t *testing.T, vip string) {
	for _, size := range []int{1473, 4000, 30000} {
		for port := 30000; port < 30004; port++ {
			l.awaitEcho(t, vip, port, size)
		}
	}
}

// awaitEcho repeats a datagram until it has come back.
func (l *lab) awaitEcho(t *testing.T, vip string, port, size int) {
	t.Helper()
	conn := l.Sockets(t, "client", vip, []int{port})[port]
	defer conn.Close()
	sent := bytes.Repeat([]byte("datagram"), size/8+1)[:size]
	harness.Until(t, fmt.Sprintf("%s echoes %d bytes", vip, size), func() bool {
		echo, err := exchangeOnce(conn, sent)
		_, echoed, _ := bytes.Cut(echo, []byte(" "))
		if err == nil && !bytes.Equal(echoed, sent) {
			t.Fatalf("%d bytes came back as %d others", size, len(echo))
		}
		return err == nil
	})
}

// exchangeOnce sends a datagram and waits 200 ms for an answer.
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

// checkSmallLink lowers the MTU of the last link to the client so far that a server's
// answer doesn't fit although the request did. The router sends its ICMP error to the
// VIP; it has to reach the server that sent the answer.
func (l *lab) checkSmallLink(t *testing.T) {
	l.Run(t, "router", "ip", "link", "set", "dev", "eth0", "mtu", "1300")
	defer l.Run(t, "router", "ip", "link", "set", "dev", "eth0", "mtu", "1500")
	for vip, size := range map[string]int{harness.VIP4: 1300 - 28, harness.VIP6: 1300 - 48} {
		for port := 31000; port < 31016; port++ {
			l.awaitEcho(t, vip, port, size)
		}
	}
}

// checkFamily sends requests of each kind. All packets have to leave the balancers by
// one exit.
func (l *lab) checkFamily(t *testing.T, forwarded, vip string) {
	t.Run("curl", func(t *testing.T) {
		name := strings.TrimSpace(l.Run(t, "client", "curl", "-sS", "--fail", "--max-time", "5", harness.Origin(vip)))
		if h := l.State().Host(name); h == nil || h.Role != netlab.Server {
			t.Errorf("%s is answered by %q, want a server", vip, name)
		}
	})
	t.Run("keep-alive", func(t *testing.T) {
		l.CheckPackets(t, forwarded, func() {
			w := l.Load(t, "client", harness.LoadLimit, harness.Origin(vip))
			l.awaitAllBalancers(t, forwarded)
			w.End(t)
		})
	})
	t.Run("close", func(t *testing.T) {
		l.CheckPackets(t, forwarded, func() {
			w := l.Load(t, "client", harness.LoadLimit, "-H", "Connection: close", harness.Origin(vip))
			l.awaitAllBackends(t, vip)
			w.End(t)
		})
	})
	t.Run("echo", func(t *testing.T) {
		l.CheckPackets(t, forwarded, func() { l.checkEcho(t, "client", vip, "") })
	})
	t.Run("upload", func(t *testing.T) { l.checkUpload(t, "client", vip) })
}

// awaitAllBalancers waits until every balancer has forwarded 2,000 packets.
func (l *lab) awaitAllBalancers(t *testing.T, forwarded string) {
	t.Helper()
	balancers := l.Hosts(netlab.Balancer)
	before := make([]uint64, len(balancers))
	for i, h := range balancers {
		before[i] = harness.ExitsOf(t, &h).Sum(forwarded)
	}
	for i, h := range balancers {
		harness.Until(t, h.Name+" has its share", func() bool { return harness.ExitsOf(t, &h).Sum(forwarded) > before[i]+2000 })
	}
}

// awaitAllBackends waits until every balancer has used every backend of the web
// service that it is configured with.
func (l *lab) awaitAllBackends(t *testing.T, vip string) {
	t.Helper()
	service := map[string]string{harness.VIP4: "web", harness.VIP6: "web6"}[vip]
	balancers := l.Hosts(netlab.Balancer)
	before := make([]map[string]observe.Backend, len(balancers))
	for i, h := range balancers {
		before[i] = harness.Backends(t, &h, service)
		configured := l.Topology.Host(h.Name).Agent.Services
		at := slices.IndexFunc(configured, func(s lb.Service) bool { return s.Name == service })
		if at < 0 || len(before[i]) != len(configured[at].Backends) {
			t.Fatalf("%s: %s: %d backends", h.Name, service, len(before[i]))
		}
	}
	for i, h := range balancers {
		harness.Until(t, h.Name+" uses all backends of "+service, func() bool {
			for address, b := range harness.Backends(t, &h, service) {
				if b.Packets < before[i][address].Packets+100 {
					return false
				}
			}
			return true
		})
	}
}

// checkEcho sends from a thousand ports. Each is answered by one server, and only by
// servers whose name has the prefix.
func (l *lab) checkEcho(t *testing.T, client, vip string, prefix string) {
	t.Helper()
	counts := harness.ByServer(l.Echo(t, client, vip, harness.Ports(1000)))
	for _, h := range l.Hosts(netlab.Server) {
		wanted := strings.HasPrefix(h.Name, prefix)
		if wanted && counts[h.Name] < 100 {
			t.Errorf("%s: %s: of 1000 ports %s answers %d", client, vip, h.Name, counts[h.Name])
		}
		if wanted {
			delete(counts, h.Name)
		}
	}
	if len(counts) > 0 {
		t.Errorf("%s: %s: ports answered by other servers (\"\" is none): %v", client, vip, counts)
	}
}

// checkUpload uploads until a body has left in segments that fill the client's MTU, so
// that they exceed it in a tunnel. On a busy machine curl may write so little at a time
// that segments are short, but not every time.
func (l *lab) checkUpload(t *testing.T, client, vip string) {
	const (
		size  = 256 << 10
		tries = 8
		// With IPv6, TCP and its time stamps, so many packets carry the body if they
		// have the smallest MTU of IPv6, with one that isn't full for each of curl's
		// writes; full ones of 1500 bytes are a sixth fewer.
		short = size/(1280-72) + size/(16<<10)
	)
	before := l.Totals(t)
	var sent []uint64
	for range tries {
		sent = append(sent, l.countUpload(t, client, vip, size))
		if sent[len(sent)-1] < short {
			l.Totals(t).Minus(before).CheckClean(t)
			return
		}
	}
	t.Errorf("%v packets for %d bytes each: segments were never full", sent, size)
}

// upload sends a body of that size to the web service.
func (l *lab) upload(t *testing.T, client, vip string, size int) {
	t.Helper()
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	said := l.Run(t, client, "curl", "-sS", "--fail", "--max-time", "5", "-o", "/dev/null",
		"-w", "%{http_code} %{size_upload}", "--data-binary", "@"+body, harness.Origin(vip))
	if said != fmt.Sprintf("200 %d", size) {
		t.Errorf("status and bytes sent: %s", said)
	}
}

// countUpload uploads and returns the number of packets it took.
func (l *lab) countUpload(t *testing.T, client, vip string, size uint64) uint64 {
	t.Helper()
	service := map[string]string{harness.VIP4: "web", harness.VIP6: "web6"}[vip] + strings.TrimPrefix(client, "client")
	traffic := l.Traffic(t, service)
	l.upload(t, client, vip, int(size))
	// The last segments may still be on their way.
	harness.Until(t, "the balancers have counted the whole body", func() bool { return l.Traffic(t, service).Bytes-traffic.Bytes > size })
	return l.Traffic(t, service).Packets - traffic.Packets
}

// checkLearnedMTU checks that a client learns an overlay's MTU from a datagram. It is less
// than its link's. TCP has it from the MSS of the servers.
func (l *lab) checkLearnedMTU(t *testing.T, client, vip string, mtu int) {
	t.Helper()
	conn, err := l.Dial(t.Context(), client, "udp", net.JoinHostPort(vip, "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 1450)); err != nil {
		t.Fatalf("%s: datagram to %s: %v", client, vip, err)
	}
	harness.Until(t, "the client knows what fits", func() bool { return l.pathMTU(t, client, vip) == mtu })
	l.checkUpload(t, client, vip)
}

// pathMTU returns the path MTU that a host has learnt for an address, or 0.
func (l *lab) pathMTU(t *testing.T, host, address string) int {
	t.Helper()
	mtu := 0
	err := l.Do(host, func() error {
		routes, err := netlink.RouteGet(net.ParseIP(address))
		for _, r := range routes {
			mtu = r.MTU
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: route to %s: %v", host, address, err)
	}
	return mtu
}
