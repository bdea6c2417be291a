// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The addresses of the router at the first place and of the balancer, which the tests
// are.
var (
	router4   = netip.MustParseAddr("10.0.2.1")
	router6   = netip.MustParseAddr("fd00:2::1")
	balancer4 = netip.MustParseAddr("10.0.2.11")
	balancer6 = netip.MustParseAddr("fd00:2::11")
)

// place is where a router is: behind a link of this name, whose ends have addresses.
type place struct {
	link                   string
	near4, near6, at4, at6 netip.Addr
}

// Two places.
var (
	first  = place{"eth0", balancer4, balancer6, router4, router6}
	second = place{
		"eth1", netip.MustParseAddr("10.0.3.11"), netip.MustParseAddr("fd00:3::11"),
		netip.MustParseAddr("10.0.3.1"), netip.MustParseAddr("fd00:3::1"),
	}
)

// box is a network namespace in which a router's daemons run, with a link to the
// tests' namespace.
type box struct {
	t *testing.T
	place
	// work runs in a thread that is in the namespace ns.
	work    chan func()
	ns      netns.NsHandle
	daemons map[string]*exec.Cmd
}

// newBox makes a box at a place, or skips the test.
func newBox(t *testing.T, at place) *box {
	t.Helper()
	return newBehind(t, at, func(f func()) { f() })
}

// newBehind makes a box behind a namespace in which near runs functions.
func newBehind(t *testing.T, at place, near func(func())) *box {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a router in a network namespace")
	}
	r := &box{t: t, place: at, work: make(chan func()), daemons: map[string]*exec.Cmd{}}
	r.namespace()
	r.do(r.skipDAD)
	near(func() {
		r.skipDAD()
		r.must(netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: at.link}, PeerName: at.link, PeerNamespace: netlink.NsFd(int(r.ns)),
		}))
		r.address(at.near4, at.near6)
	})
	t.Cleanup(func() { near(func() { _ = netlink.LinkDel(r.find()) }) })
	r.do(func() { r.address(at.at4, at.at6) })
	return r
}

// needs skips the test if a program isn't installed.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		t.Skip("not installed: " + program)
	}
}

// namespace makes the network namespace.
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
}

// skipDAD makes later interfaces use their IPv6 addresses at once, as they are unique
// (RFC 4862 §5.4).
func (r *box) skipDAD() {
	r.must(os.WriteFile("/proc/sys/net/ipv6/conf/default/dad_transmits", []byte("0"), 0))
}

// find is the link of the box in the namespace of the caller.
func (r *box) find() netlink.Link {
	r.t.Helper()
	link, err := netlink.LinkByName(r.place.link)
	r.must(err)
	return link
}

// address sets lo up, and the link with addresses.
func (r *box) address(v4, v6 netip.Addr) {
	lo, err := netlink.LinkByName("lo")
	r.must(err)
	r.must(netlink.LinkSetUp(lo))
	link := r.find()
	r.must(netlink.LinkSetUp(link))
	for ip, ones := range map[netip.Addr]int{v4: 24, v6: 64} {
		net := &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ones, ip.BitLen())}
		r.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: net, Flags: unix.IFA_F_NODAD}))
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
	r.t.Helper()
	done := make(chan bool, 1)
	r.work <- func() {
		finished := false
		defer func() { done <- finished }()
		f()
		finished = true
	}
	if !<-done { // a test that failed in there ended the thread
		r.t.FailNow()
	}
}

func (r *box) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}
