// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/reflector"
	"fairlead.io/fairlead/test/await"
)

// In the tests' namespace a BIRD is the router, the reflector's clients are
// of client_test.go, and all have addresses of the loopback.
const asn = 65021

var (
	routerAddress    = netip.MustParseAddr("127.0.0.1")
	reflectorAddress = netip.MustParseAddr("127.0.0.2")
	clientRange      = netip.MustParsePrefix("127.0.1.0/24")
	log              = slog.New(slog.DiscardHandler)
)

func clientAddress(n int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, byte(n)}) }

// settings are the reflector's in most tests.
func settings() bgp.Reflection {
	return bgp.Reflection{
		Local:     bgp.Local{ASN: asn, RouterID: netip.MustParseAddr("10.0.2.10")},
		ClusterID: netip.MustParseAddr("10.0.2.10"),
		Listen:    []netip.Addr{reflectorAddress},
		Clients: []bgp.Range{{
			Prefix: clientRange, MaxClients: 256, Peer: bgp.Peer{ASN: asn, HoldTime: 90 * time.Second, RestartTime: 30 * time.Second},
		}},
		Routers: []bgp.Peer{{
			Address: routerAddress, ASN: asn, LocalAddress: reflectorAddress,
			HoldTime: 90 * time.Second, RestartTime: 30 * time.Second,
		}},
		Accept: []bgp.Acceptance{
			{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Shortest: 32},
			{Prefix: netip.MustParsePrefix("fd00:10::/32"), Shortest: 128},
		},
		NextHops:    []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("fd00:2::/64")},
		RestartWait: 10 * time.Second,
	}
}

// start starts a reflector that ends with the test.
func start(t *testing.T, config bgp.Reflection, book string) *reflector.Reflector {
	t.Helper()
	needsRoot(t)
	r, err := reflector.Start(t.Context(), config, reflector.Options{ClientFile: book, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	t.Cleanup(func() { once.Do(r.Close) })
	return r
}

func configure(t *testing.T, r *reflector.Reflector, config bgp.Reflection) {
	t.Helper()
	if err := r.Configure(config); err != nil {
		t.Fatal(err)
	}
}

// reflected formats the routes that a reflector passes on, a line each.
func reflected(t *testing.T, r *reflector.Reflector) string {
	t.Helper()
	var out strings.Builder
	for _, route := range r.Routes() {
		fmt.Fprintf(&out, "%s via %s from %s", route.Prefix, route.NextHop, route.Clients)
		if len(route.Stale) > 0 {
			fmt.Fprintf(&out, " stale %s", route.Stale)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// awaitReflected waits until the reflector passes on exactly this.
func awaitReflected(t *testing.T, r *reflector.Reflector, want string) {
	t.Helper()
	await.Equal(t, "routes that the reflector passes on", want, func() string { return reflected(t, r) })
}

const birdText = `
router id 10.0.2.1;
log stderr { warning, error, auth, fatal, bug };
protocol device {}
protocol direct { ipv4; ipv6; }
protocol kernel { merge paths on limit 64; ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel { merge paths on limit 64; ipv6 { import none; export where source = RTS_BGP; }; }
protocol static { ipv4; route 10.1.9.9/32 blackhole; }
protocol bgp reflector {
  local 127.0.0.1 as 65021;
  neighbor 127.0.0.2 as 65021;
  strict bind on; passive on; multihop;
  %s
  connect delay time 1; error wait time 1, 2;
  ipv4 { add paths rx; import where bgp_local_pref <= 100 && !((65535, 666) ~ bgp_community); export all; gateway recursive; };
  ipv6 { add paths rx; import all; export none; gateway recursive; };
}
`

// startBIRD starts the router, which also announces a VIP of its own; more is added
// to its configuration of the reflector.
func startBIRD(t *testing.T, more string) {
	t.Helper()
	needsRoot(t)
	program, err := exec.LookPath("bird")
	if err != nil {
		t.Fatalf("%v: scripts/install-deps.sh test", err)
	}
	network(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, birdText, more), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "-f", "-c", config, "-s", filepath.Join(dir, "s"), "-P", filepath.Join(dir, "pid"))
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it takes its routes away
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("bird:\n%s", said.String())
		}
	})
}

// network makes the link on which clients' next hops are.
func network(t *testing.T) {
	t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	for _, name := range []string{"eth1", "eth0"} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			t.Fatal(err)
		}
		if name == "eth1" {
			continue
		}
		for _, text := range []string{"10.0.2.1/24", "fd00:2::1/64"} {
			address, err := netlink.ParseAddr(text)
			if err == nil {
				address.Flags = unix.IFA_F_NODAD
				err = netlink.AddrAdd(link, address)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// hops are the next hops of a prefix in the kernel.
func hops(prefix string) string {
	_, destination, err := net.ParseCIDR(prefix)
	if err != nil {
		return err.Error()
	}
	family := netlink.FAMILY_V4
	if destination.IP.To4() == nil {
		family = netlink.FAMILY_V6
	}
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Dst: destination}, netlink.RT_FILTER_DST)
	if err != nil {
		return err.Error()
	}
	var found []string
	for _, r := range routes {
		if r.Gw != nil {
			found = append(found, r.Gw.String())
		}
		for _, h := range r.MultiPath {
			found = append(found, h.Gw.String())
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

func awaitHops(t *testing.T, prefix, want string) {
	t.Helper()
	await.Equal(t, "next hops of "+prefix, want, func() string { return hops(prefix) })
}
