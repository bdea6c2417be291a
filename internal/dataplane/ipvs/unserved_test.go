// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
)

// inNamespace runs fn in a new network namespace, on a thread that ends with it.
func inNamespace(t *testing.T, fn func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces take root")
	}
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked
		defer close(done)
		ns, err := netns.New()
		if err != nil {
			t.Error(err)
			return
		}
		defer ns.Close()
		fn()
	}()
	<-done
}

// The node's own programs answer at no port of a VIP but the ports of services, whose packets IPVS takes behind
// the filter. An address of an interface is left alone. This kernel needs no IPVS for that.
func TestUnservedPorts(t *testing.T) {
	inNamespace(t, func() {
		k := &kernel{}
		var err error
		if k.rtnetlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err == nil {
			k.tables, err = openTables()
		}
		lo, linkErr := netlink.LinkByName("lo")
		if err = errors.Join(err, linkErr); err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Error(err)
			return
		}
		for _, address := range []string{"10.1.1.1", "fd00:10:1:1::1"} {
			checkUnserved(t, k, netip.MustParseAddr(address))
		}
	})
}

func checkUnserved(t *testing.T, k *kernel, address netip.Addr) {
	served, unserved := listen(t, address), listen(t, address)
	vip := lb.VIP{Address: address, Protocol: lb.TCP, Port: served}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
	reach := func(port uint16, want bool) {
		t.Helper()
		limit := await.Patience
		if !want {
			limit = 300 * time.Millisecond // nothing answers
		}
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(address, port).String(), limit)
		if err == nil {
			must(c.Close())
		}
		if got := err == nil; got != want {
			t.Errorf("%s port %d answers: %t, want %t (%v)", address, port, got, want, err)
		}
	}
	_, err := k.tables.ensure()
	must(err, k.addLocal(address), k.tables.change(vip, nil, &entry{}), k.closeUnserved(vip))
	reach(served, true)
	reach(unserved, false)

	again, err := openTables() // as the next agent
	must(err)
	if entries, err := again.read(); err != nil || len(entries) != 1 || !again.closed[address] {
		t.Errorf("the next agent reads %v, closed %v (%v)", entries, again.closed, err)
	}

	lo, err := netlink.LinkByName("lo")
	must(err)
	own := &netlink.Addr{IPNet: netlink.NewIPNet(address.AsSlice())}
	must(netlink.AddrAdd(lo, own), k.closeUnserved(vip))
	reach(unserved, true)
	must(netlink.AddrDel(lo, own), k.closeUnserved(vip))
	reach(unserved, false)
	must(k.tables.setClosed(address, false), k.tables.delete(), k.removeLocal(address))
}

// listen answers at a port of all addresses, which it returns, until the test ends.
func listen(t *testing.T, address netip.Addr) uint16 {
	l, err := net.Listen("tcp", net.JoinHostPort(map[bool]string{true: "0.0.0.0", false: "::"}[address.Is4()], "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	n, _ := strconv.ParseUint(port, 10, 16)
	return uint16(n)
}
