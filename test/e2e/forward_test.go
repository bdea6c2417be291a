// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
)

// Real requests in each mode and family: who answers, by which way, and that
// not one packet is lost or damaged.
func TestForward(t *testing.T) {
	for _, forward := range []lb.Forward{lb.L2DSR, lb.IPIP, lb.GUE, lb.VXLAN, lb.Geneve} {
		t.Run(forward.String(), func(t *testing.T) {
			l := bringUp(t, forward.String(), ecmp(t, forward))
			t.Run("native", l.checkNative)
			for family, vip := range map[string]string{"ipv4": vip4, "ipv6": vip6} {
				t.Run(family, func(t *testing.T) { l.checkFamily(t, "forward_"+forward.String(), vip) })
			}
		})
	}
}

func (l *lab) checkNative(t *testing.T) {
	for _, h := range l.hosts(netlab.Balancer) {
		attached := status(t, &h).DataPlane.Attachments
		if len(attached) != 1 || attached[0].Interface != "eth0" || attached[0].Mode != "native" || attached[0].Adopted {
			t.Errorf("%s: attachments %+v: want eth0, native", h.Name, attached)
		}
	}
}

// checkFamily has requests of each kind answered, by packets that leave the
// balancers by one exit.
func (l *lab) checkFamily(t *testing.T, forwarded, vip string) {
	t.Run("curl", func(t *testing.T) {
		name := strings.TrimSpace(l.run(t, "client", "curl", "-sS", "--fail", "--max-time", "5", origin(vip)))
		if h := l.State().Host(name); h == nil || h.Role != netlab.Server {
			t.Errorf("%s is answered by %q, which is no server", vip, name)
		}
	})
	t.Run("keep-alive", func(t *testing.T) {
		l.account(t, forwarded, func() {
			w := l.load(t, "client", loadLimit, origin(vip))
			l.awaitShares(t, forwarded)
			w.end(t)
		})
	})
	t.Run("close", func(t *testing.T) {
		l.account(t, forwarded, func() {
			w := l.load(t, "client", loadLimit, "-H", "Connection: close", origin(vip))
			l.awaitAllTakePart(t, vip)
			w.end(t)
		})
	})
	t.Run("echo", func(t *testing.T) {
		l.account(t, forwarded, func() { l.checkEcho(t, "client", vip, "") })
	})
	t.Run("upload", func(t *testing.T) { l.checkUpload(t, "client", vip) })
}

// account runs traffic and checks the books: every packet of the client was
// forwarded by one balancer and received by a server, every answer came back,
// and none of them by a balancer, which would count it as pass_not_vip; with NAT
// each of them did, and was translated. The counters of the senders, of XDP and of the receivers must agree to a packet.
//
// A segment that is sent again is an error of its own only if something was
// lost: on a busy machine a late answer does it.
func (l *lab) account(t *testing.T, forwarded string, traffic func()) {
	t.Helper()
	before := l.quietBooks(t)
	traffic()
	var b books
	settled := within(patience, func() bool {
		b = l.books(t).minus(before)
		return b.balanced(forwarded)
	})
	if !settled {
		t.Errorf("packets are missing: sent, %s and received don't agree:\n%s", forwarded, b)
	}
	b.checkClean(t)
	if b.clients.repeated+b.servers.repeated > 0 {
		t.Logf("segments were repeated, and none was lost:\n%s", b)
	}
	for name, e := range b.balancers {
		if e.sum(forwarded) == 0 {
			t.Errorf("%s took no part:\n%s", name, b)
		}
	}
}

// checkClean reports packets that were damaged, lost or went astray.
func (b books) checkClean(t *testing.T) {
	t.Helper()
	if b.clients.badChecksums+b.servers.badChecksums > 0 {
		t.Errorf("wrong checksums:\n%s", b)
	}
	if b.lost > 0 {
		t.Errorf("interfaces dropped frames:\n%s", b)
	}
	for name, e := range b.balancers {
		for exit, packets := range e {
			if packets > 0 && (strings.HasPrefix(exit, "drop_") || exit == "pass_not_vip") {
				t.Errorf("%s: %d packets left by %s", name, packets, exit)
			}
		}
	}
}

// awaitShares waits until every balancer has forwarded thousands of packets.
func (l *lab) awaitShares(t *testing.T, forwarded string) {
	t.Helper()
	for _, h := range l.hosts(netlab.Balancer) {
		before := exitsOf(t, &h).sum(forwarded)
		until(t, h.Name+" has its share", func() bool { return exitsOf(t, &h).sum(forwarded) > before+2000 })
	}
}

// awaitAllTakePart waits until every balancer has used every backend of the web
// service that it is configured with.
func (l *lab) awaitAllTakePart(t *testing.T, vip string) {
	t.Helper()
	service := map[string]string{vip4: "web", vip6: "web6"}[vip]
	for _, h := range l.hosts(netlab.Balancer) {
		before := backends(t, &h, service)
		configured := l.topology.Host(h.Name).Agent.Services
		i := slices.IndexFunc(configured, func(s lb.Service) bool { return s.Name == service })
		if i < 0 || len(before) != len(configured[i].Backends) {
			t.Fatalf("%s: %s: %d backends", h.Name, service, len(before))
		}
		until(t, h.Name+" uses all backends of "+service, func() bool {
			for address, b := range backends(t, &h, service) {
				if b.Packets < before[address].Packets+100 {
					return false
				}
			}
			return true
		})
	}
}

// checkEcho has a thousand ports answered, by all servers whose name has the
// prefix and by no other, each port by one.
func (l *lab) checkEcho(t *testing.T, client, vip string, prefix string) {
	t.Helper()
	counts := byServer(l.echo(t, client, vip, ports(1000)))
	for _, h := range l.hosts(netlab.Server) {
		wanted := strings.HasPrefix(h.Name, prefix)
		if wanted && counts[h.Name] < 100 {
			t.Errorf("%s: %s: of 1000 ports %s answers %d", client, vip, h.Name, counts[h.Name])
		}
		if wanted {
			delete(counts, h.Name)
		}
	}
	if len(counts) > 0 {
		t.Errorf("%s: %s: ports answered by others, or by nobody: %v", client, vip, counts)
	}
}

// checkUpload sends bodies until one went in segments that fill the client's MTU,
// so that in a tunnel they are longer than that. On a busy machine curl may hand
// the kernel so little at a time that a body's segments are short, but not always:
// where they can't be full, they never are.
func (l *lab) checkUpload(t *testing.T, client, vip string) {
	const (
		size  = 256 << 10
		tries = 8
		// With IPv6, TCP and its time stamps, so many packets carry the body if they
		// have the smallest MTU of IPv6, with one that isn't full for each of curl's
		// writes; full ones of 1500 bytes are a sixth fewer.
		short = size/(1280-72) + size/(16<<10)
	)
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	before := l.books(t)
	var sent []uint64
	for range tries {
		sent = append(sent, l.upload(t, client, vip, body, size))
		if sent[len(sent)-1] < short {
			l.books(t).minus(before).checkClean(t)
			return
		}
	}
	t.Errorf("%v packets for %d bytes each: segments were never full", sent, size)
}

// upload sends a body and returns in how many packets.
func (l *lab) upload(t *testing.T, client, vip, body string, size uint64) uint64 {
	t.Helper()
	service := map[string]string{vip4: "web", vip6: "web6"}[vip] + strings.TrimPrefix(client, "client")
	traffic := l.traffic(t, service)
	said := l.run(t, client, "curl", "-sS", "--fail", "--max-time", "5", "-o", "/dev/null",
		"-w", "%{http_code} %{size_upload}", "--data-binary", "@"+body, origin(vip))
	if said != fmt.Sprintf("200 %d", size) {
		t.Errorf("status and bytes sent: %s", said)
	}
	// The last segments may still be on their way.
	until(t, "the balancers have counted the whole body", func() bool { return l.traffic(t, service).Bytes-traffic.Bytes > size })
	return l.traffic(t, service).Packets - traffic.Packets
}
