// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
)

// namespace is a network namespace without a name: it is gone with the thread
// that made it and with its handles, also if the test is killed.
type namespace struct {
	*netlink.Handle
	fd    netns.NsHandle
	calls chan func()
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	ns := &namespace{calls: make(chan func())}
	made := make(chan error)
	go ns.live(made)
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(ns.calls)
		ns.Close()
		if err := ns.fd.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// live keeps a thread inside the namespace and runs calls on it. The thread is
// never unlocked, so that it ends with the goroutine.
func (ns *namespace) live(made chan<- error) {
	runtime.LockOSThread()
	var err error
	if ns.fd, err = netns.New(); err == nil {
		ns.Handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	made <- err
	for call := range ns.calls {
		call()
	}
}

// do runs f on the namespace's thread.
func (ns *namespace) do(t *testing.T, f func() error) {
	t.Helper()
	result := make(chan error)
	ns.calls <- func() { result <- f() }
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

func (ns *namespace) sysctl(t *testing.T, path string, value int) {
	t.Helper()
	ns.do(t, func() error { return os.WriteFile("/proc/sys/net/"+path, fmt.Append(nil, value), 0o644) })
}

func (ns *namespace) link(t *testing.T, name string) netlink.Link {
	t.Helper()
	return must(ns.LinkByName(name))(t)
}

// must fails the test on an error, else it returns the value.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// address adds an address that is usable at once.
func (ns *namespace) address(t *testing.T, device, prefix string) {
	t.Helper()
	a := &netlink.Addr{IPNet: network(prefix)}
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD
	}
	check(t, ns.AddrAdd(ns.link(t, device), a))
}

func network(prefix string) *net.IPNet {
	p := netip.MustParsePrefix(prefix)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (ns *namespace) mac(t *testing.T, device string) net.HardwareAddr {
	t.Helper()
	return ns.link(t, device).Attrs().HardwareAddr
}

func (ns *namespace) up(t *testing.T, devices ...string) {
	t.Helper()
	for _, d := range devices {
		check(t, ns.LinkSetUp(ns.link(t, d)))
	}
}

// hurry makes the kernel give neighbours up soon, try them again soon and keep
// a new MAC address at once.
func (ns *namespace) hurry(t *testing.T, device string) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		path := family + "/neigh/" + device + "/"
		ns.sysctl(t, path+"retrans_time_ms", 20)
		ns.sysctl(t, path+"interval_probe_time_ms", 100)
		ns.sysctl(t, path+"locktime", 0)
	}
}

// wire is a balancer and a machine next to it: eth0 and eth1 of the one lead to
// eth0 and eth1 of the other; XDP would run on the balancer's eth0 only.
type wire struct {
	balancer, peer *namespace
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{newNamespace(t), newNamespace(t)}
	for _, ns := range []*namespace{w.balancer, w.peer} {
		ns.sysctl(t, "ipv6/conf/default/accept_dad", 0)
		ns.sysctl(t, "ipv4/conf/default/arp_notify", 1)
		ns.sysctl(t, "ipv6/conf/default/ndisc_notify", 1)
		ns.up(t, "lo")
	}
	for i, name := range []string{"eth0", "eth1"} {
		check(t, w.balancer.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500}, PeerName: name, PeerNamespace: netlink.NsFd(w.peer.fd),
		}))
		for host, ns := range []*namespace{w.balancer, w.peer} {
			ns.hurry(t, name)
			ns.up(t, name)
			ns.address(t, name, fmt.Sprintf("10.0.%d.%d/24", i, host+1))
			ns.address(t, name, fmt.Sprintf("fd00:%d::%d/64", i, host+1))
		}
	}
	return w
}

// resolver makes a Resolver in the balancer's namespace.
func (w *wire) resolver(t *testing.T) *Resolver {
	t.Helper()
	var r *Resolver
	w.balancer.do(t, func() (err error) {
		r, err = New(slog.New(slog.NewTextHandler(t.Output(), nil)), []string{"eth0"}, false)
		return err
	})
	t.Cleanup(func() { check(t, r.Close()) })
	return r
}

// notified returns a channel that has a value when something has changed.
func notified(r *Resolver) <-chan struct{} {
	changed := make(chan struct{}, 1)
	r.Notify(func(lb.VIP) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	return changed
}

// awaitResult follows a target until its result is as wanted; it continues only when the
// Resolver says that something has changed.
func awaitResult(t *testing.T, r *Resolver, target Target, want func(Result) bool) Hop {
	t.Helper()
	deadline, changed := time.After(await.Patience), notified(r)
	for {
		got := r.Follow(vipOf(1), []Target{target})[0]
		if want(got) {
			return got.Hop
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s: last result %v, %v", target.Address, got.Hop, got.Err)
		}
	}
}

func awaitHop(t *testing.T, r *Resolver, target Target) Hop {
	t.Helper()
	return awaitResult(t, r, target, func(got Result) bool { return got.Err == nil })
}

func awaitError(t *testing.T, r *Resolver, target Target, want string) {
	t.Helper()
	awaitResult(t, r, target, func(got Result) bool { return text(got.Err) == want })
}
