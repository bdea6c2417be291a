// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The addresses of a router and of the balancer, which the tests are.
var (
	router4   = netip.MustParseAddr("10.0.2.1")
	router6   = netip.MustParseAddr("fd00:2::1")
	balancer4 = netip.MustParseAddr("10.0.2.11")
	balancer6 = netip.MustParseAddr("fd00:2::11")
)

// box is a network namespace in which a router's daemons run, with a link to that of
// the tests.
type box struct {
	t *testing.T
	// work runs in a thread that is in the namespace ns.
	work    chan func()
	ns      netns.NsHandle
	daemons map[string]*exec.Cmd
}

// newBox makes a box, or skips the test.
func newBox(t *testing.T, needs string) *box {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a router in a network namespace")
	}
	if _, err := os.Stat(needs); err != nil {
		t.Skip("not installed: " + needs)
	}
	r := &box{t: t, work: make(chan func()), daemons: map[string]*exec.Cmd{}}
	r.namespace()
	return r
}

// namespace makes the network namespace, and in the test's own the link to it.
func (r *box) namespace() {
	ready := make(chan netns.NsHandle)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			r.t.Error(err)
		}
		ns, _ := netns.Get()
		ready <- ns
		for f := range r.work {
			f()
		}
	}()
	r.ns = <-ready
	r.t.Cleanup(func() { close(r.work); r.ns.Close() })
	r.skipDAD()
	r.do(r.skipDAD)
	link := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(r.ns)),
	}
	r.must(netlink.LinkAdd(link))
	r.t.Cleanup(func() { _ = netlink.LinkDel(link) })
	r.address(balancer4, balancer6)
	r.do(func() { r.address(router4, router6) })
}

// skipDAD has interfaces to come use their IPv6 addresses at once: nobody else has
// them (RFC 4862 §5.4).
func (r *box) skipDAD() {
	r.must(os.WriteFile("/proc/sys/net/ipv6/conf/default/dad_transmits", []byte("0"), 0))
}

// address gives eth0, and lo, what they need.
func (r *box) address(addrs ...netip.Addr) {
	for _, name := range []string{"lo", "eth0"} {
		link, err := netlink.LinkByName(name)
		r.must(err)
		r.must(netlink.LinkSetUp(link))
		for _, addr := range addrs {
			if name == "eth0" {
				ip := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen()/4*3, addr.BitLen())}
				if addr.Is6() {
					ip.Mask = net.CIDRMask(64, 128)
				}
				r.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD}))
			}
		}
	}
}

// run starts a daemon; it ends with the test, however that ends.
func (r *box) run(daemon string, args ...string) {
	r.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	r.do(func() { err = cmd.Start() })
	r.must(err)
	r.daemons[daemon] = cmd
	r.t.Cleanup(func() { r.stop(daemon) })
}

// stop kills a daemon.
func (r *box) stop(daemon string) {
	if cmd := r.daemons[daemon]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(r.daemons, daemon)
	}
}

// do runs f in the router's namespace.
func (r *box) do(f func()) {
	done := make(chan struct{})
	r.work <- func() { defer close(done); f() }
	<-done
}

func (r *box) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// await waits until a condition holds.
func (r *box) await(what string, holds func() bool) {
	r.t.Helper()
	await(r.t, what, holds)
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in 20 s", what)
		}
	}
}

// hops are the next hops of a prefix in the router's kernel.
func (r *box) hops(prefix string) (hops []string) {
	_, dst, err := net.ParseCIDR(prefix)
	r.must(err)
	family := netlink.FAMILY_V4
	if dst.IP.To4() == nil {
		family = netlink.FAMILY_V6
	}
	r.do(func() {
		routes, _ := netlink.RouteListFiltered(family, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
		for _, route := range routes {
			switch {
			case route.Gw != nil:
				hops = append(hops, route.Gw.String())
			case route.Via != nil:
				hops = append(hops, route.Via.String())
			}
			for _, h := range route.MultiPath {
				hops = append(hops, h.Gw.String())
			}
		}
	})
	slices.Sort(hops)
	return hops
}

// awaitHops waits until the router's kernel sends a prefix to these, and to none
// else.
func (r *box) awaitHops(prefix string, hops ...string) {
	r.t.Helper()
	r.await(fmt.Sprintf("%s by %v", prefix, hops), func() bool { return slices.Equal(r.hops(prefix), hops) })
}

// watch looks at prefixes in the router's kernel until the function that it returns
// is called, which tells those that were not there at some time: looked for again
// and again, as the kernel doesn't tell of every route that goes, and told of, as
// one may be back before the next look.
func (r *box) watch(prefixes ...string) func() []string {
	r.t.Helper()
	stop, updates, lost := make(chan struct{}), make(chan netlink.RouteUpdate), make(chan []string)
	r.must(netlink.RouteSubscribeAt(r.ns, updates, stop))
	go func() {
		var missing []string
		note := func(prefix string) {
			if !slices.Contains(missing, prefix) {
				missing = append(missing, prefix)
			}
		}
		for {
			for _, prefix := range prefixes {
				if len(r.hops(prefix)) == 0 {
					note(prefix)
				}
			}
			select {
			case u, ok := <-updates:
				if !ok {
					lost <- missing
					return
				}
				if u.Type == unix.RTM_DELROUTE && slices.Contains(prefixes, u.Dst.String()) {
					note(u.Dst.String())
				}
			default:
			}
		}
	}()
	return func() []string { close(stop); return <-lost }
}

// forget takes an address away from this end of the link.
func (r *box) forget(addr netip.Addr) {
	r.t.Helper()
	link, err := netlink.LinkByName("eth0")
	r.must(err)
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	r.must(err)
	for _, a := range addrs {
		if a.IP.Equal(addr.AsSlice()) {
			r.must(netlink.AddrDel(link, &a))
		}
	}
}

// link changes the router's end of the link.
func (r *box) link(change func(netlink.Link) error) {
	r.t.Helper()
	var err error
	r.do(func() {
		var link netlink.Link
		if link, err = netlink.LinkByName("eth0"); err == nil {
			err = change(link)
		}
	})
	r.must(err)
}
