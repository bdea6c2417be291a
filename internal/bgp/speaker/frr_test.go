// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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

// frr is a router: FRR's zebra and bgpd in a namespace of their own, with a link
// to that of the tests.
type frr struct {
	t    *testing.T
	name string // of the path space
	dir  string
	// work runs in a thread that is in the namespace.
	work    chan func()
	daemons map[string]*exec.Cmd
}

// daemonDir is where Debian has FRR's daemons.
const daemonDir = "/usr/lib/frr"

// startFRR starts a router whose bgpd has the given configuration.
func startFRR(t *testing.T, bgpd string) *frr {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a router in a network namespace")
	}
	if _, err := os.Stat(filepath.Join(daemonDir, "bgpd")); err != nil {
		t.Skip("FRR is not installed")
	}
	r := &frr{
		t: t, name: fmt.Sprintf("fairlead-%d-%s", os.Getpid(), strconv.FormatInt(time.Now().UnixNano(), 36)),
		work: make(chan func()), daemons: map[string]*exec.Cmd{},
	}
	r.namespace()
	r.directory()
	r.start("zebra", "hostname router\n")
	r.await("zebra's socket", func() bool { _, err := os.Stat(filepath.Join(r.dir, "zserv.api")); return err == nil })
	r.start("bgpd", bgpd)
	return r
}

// namespace makes the network namespace, and in the test's own the link to it.
func (r *frr) namespace() {
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
	ns := <-ready
	r.t.Cleanup(func() { close(r.work); ns.Close() })
	link := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns)),
	}
	r.must(netlink.LinkAdd(link))
	r.t.Cleanup(func() { _ = netlink.LinkDel(link) })
	r.address(balancer4, balancer6)
	r.do(func() { r.address(router4, router6) })
}

// address gives eth0, and lo, what they need.
func (r *frr) address(addrs ...netip.Addr) {
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

// directory makes what the daemons keep their files in.
func (r *frr) directory() {
	r.dir = filepath.Join("/var/run/frr", r.name)
	r.must(os.MkdirAll(r.dir, 0o755))
	r.t.Cleanup(func() { os.RemoveAll(r.dir) })
	account, err := user.Lookup("frr")
	r.must(err)
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	r.must(os.Chown(r.dir, uid, gid))
}

// start starts a daemon; it ends with the test, however that ends.
func (r *frr) start(daemon, config string) {
	r.t.Helper()
	file := filepath.Join(r.dir, daemon+".conf")
	r.must(os.WriteFile(file, []byte(config), 0o644))
	cmd := exec.Command(filepath.Join(daemonDir, daemon), "-N", r.name, "-f", file,
		"-i", filepath.Join(r.dir, daemon+".pid"), "-A", "127.0.0.1", "--log", "file:"+filepath.Join(r.dir, daemon+".log"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	r.do(func() { err = cmd.Start() })
	r.must(err)
	r.daemons[daemon] = cmd
	r.t.Cleanup(func() { r.stop(daemon) })
	r.await(daemon, func() bool { _, err := os.Stat(filepath.Join(r.dir, daemon+".vty")); return err == nil })
}

// stop kills a daemon.
func (r *frr) stop(daemon string) {
	if cmd := r.daemons[daemon]; cmd != nil {
		if r.t.Failed() {
			log, _ := os.ReadFile(filepath.Join(r.dir, daemon+".log"))
			r.t.Logf("%s:\n%s", daemon, log)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(r.daemons, daemon)
		os.Remove(filepath.Join(r.dir, daemon+".vty"))
	}
}

// do runs f in the router's namespace.
func (r *frr) do(f func()) {
	done := make(chan struct{})
	r.work <- func() { defer close(done); f() }
	<-done
}

func (r *frr) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// await waits until a condition holds.
func (r *frr) await(what string, holds func() bool) {
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
func (r *frr) hops(prefix string) (hops []string) {
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
func (r *frr) awaitHops(prefix string, hops ...string) {
	r.t.Helper()
	r.await(fmt.Sprintf("%s by %v", prefix, hops), func() bool { return slices.Equal(r.hops(prefix), hops) })
}

// vtysh runs commands.
func (r *frr) vtysh(commands ...string) string {
	r.t.Helper()
	args := []string{"-N", r.name}
	for _, command := range commands {
		args = append(args, "-c", command)
	}
	out, err := exec.Command("vtysh", args...).Output()
	r.must(err)
	return string(out)
}

// notifications is how many the balancer has sent. FRR counts some of them twice.
func (r *frr) notifications() int {
	r.t.Helper()
	var neighbours map[string]struct {
		MessageStats struct {
			NotificationsRecv int `json:"notificationsRecv"`
		} `json:"messageStats"`
	}
	r.must(json.Unmarshal([]byte(r.vtysh("show bgp neighbor "+balancer4.String()+" json")), &neighbours))
	return neighbours[balancer4.String()].MessageStats.NotificationsRecv
}

// watch looks at prefixes in the router's kernel until the function that it returns
// is called, which tells those that were not there at some time.
func (r *frr) watch(prefixes ...string) func() []string {
	stop, lost := make(chan struct{}), make(chan []string)
	go func() {
		var missing []string
		for {
			for _, prefix := range prefixes {
				if len(r.hops(prefix)) == 0 && !slices.Contains(missing, prefix) {
					missing = append(missing, prefix)
				}
			}
			select {
			case <-stop:
				lost <- missing
				return
			default:
			}
		}
	}()
	return func() []string { close(stop); return <-lost }
}

// forget takes an address away from this end of the link.
func (r *frr) forget(addr netip.Addr) {
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

// freeze stops a daemon without ending it.
func (r *frr) freeze(daemon string) {
	r.t.Helper()
	r.must(r.daemons[daemon].Process.Signal(syscall.SIGSTOP))
}

// link changes the router's end of the link.
func (r *frr) link(change func(netlink.Link) error) {
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
