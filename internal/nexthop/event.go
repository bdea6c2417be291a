// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The table's methods of this file and neighbours.changed take events. Each marks the entries that the event
// may concern, so that decideMarked decides them again, and no others: thousands of
// routes, neighbours and devices that aren't the backends' change often on a
// busy node.

// routeChanged takes the coming, change or going of a route.
func (t *table) routeChanged(prefix netip.Prefix, table int) {
	entries := t.index.sort(t.entries)
	for i := t.index.from(prefix.Masked().Addr()); i < len(entries) && prefix.Contains(entries[i].target.Address); i++ {
		e := entries[i]
		// In one table the longest prefix wins: a shorter one changes nothing.
		if table != e.route.table || prefix.Bits() >= e.route.prefix.Bits() {
			t.reroute(e)
		}
	}
}

// rerouteAll takes an event that may concern every route: a routing rule or a
// next-hop object.
func (t *table) rerouteAll() {
	for _, e := range t.entries {
		t.reroute(e)
	}
}

func (t *table) reroute(e *entry) {
	e.rerouted = true
	t.stale[e] = struct{}{}
}

// linkChanged takes the coming or change of a device.
func (t *table) linkChanged(l link) {
	before, known := t.view.links[l.index]
	if known && before == l {
		return
	}
	t.view.links[l.index] = l
	t.rerouteThrough(before, l)
}

// linkGone takes the going of a device.
func (t *table) linkGone(index int) {
	before := t.view.links[index]
	delete(t.view.links, index)
	t.rerouteThrough(before, link{index: index})
}

// rerouteThrough marks the entries whose route uses a device, or a VLAN device
// on top of it. Their routes may have changed as well: the kernel drops and
// revives the IPv4 routes and ECMP paths of a device without an event. Where XDP
// runs on the device, entries without a route are concerned too.
func (t *table) rerouteThrough(before, now link) {
	t.rerouteUsers(now.index)
	t.staleBridge(before)
	t.staleBridge(now)
	if !t.view.runs(before) && !t.view.runs(now) {
		return
	}
	t.relinked = true
	for _, e := range t.entries {
		if len(e.route.paths) == 0 {
			t.reroute(e)
		}
	}
}

// staleBridge marks the entries whose route uses the bridge of a port that decides whether pods are
// behind it (hasPods). Pods' ports, which come and go, don't.
func (t *table) staleBridge(port link) {
	if !t.view.filterPods || port.master == 0 || port.kind == kindVeth && !t.view.runs(port) {
		return
	}
	for e := range t.index.byDevice[port.master] {
		t.stale[e] = struct{}{}
	}
}

// rerouteUsers marks the entries whose route uses a device, or a VLAN device on
// top of it.
func (t *table) rerouteUsers(index int) {
	for device, users := range t.index.byDevice {
		if device != index && t.view.links[device].parent != index {
			continue
		}
		for e := range users {
			t.reroute(e)
		}
	}
}

// addressChanged takes the coming, change or going of an address of this machine
// on the interface index. The kernel drops IPv4 routes that prefer an address
// without an event when it goes. Others that use it, of which there are many where
// all pods have one gateway, may have to use another, but keep their routes.
func (t *table) addressChanged(index int, address netip.Addr) {
	t.oldAddresses = true
	t.rerouteUsers(index)
	for _, e := range t.entries {
		local := e.result().Hop.Local
		switch {
		case e.route.source == address:
			t.reroute(e)
		case !e.target.OnLink && (!local.IsValid() || local == address):
			t.stale[e] = struct{}{}
		}
	}
}

// eventGroups returns the multicast groups of rtnetlink(7) that are listened to.
// Routes also change with events that the kernel reports only to the last three:
// routing rules, and the next-hop objects that routes refer to.
func eventGroups() []int {
	return []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_NEXTHOP,
	}
}

// receiveBuffer is how many bytes of events wait for the reader: some ten
// thousand. More are lost, and the loss is noticed.
const receiveBuffer = 8 << 20

// errLost is returned if the kernel had to drop events.
var errLost = errors.New("events lost")

// subscription receives the kernel's events. It isn't nl.NetlinkSocket because
// that allocates 64 KiB for every message.
type subscription struct {
	file   *os.File
	conn   syscall.RawConn
	buffer []byte
}

// subscribe opens a subscription in the calling thread's network namespace.
func subscribe() (*subscription, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	s := &subscription{file: os.NewFile(uintptr(fd), "rtnetlink"), buffer: make([]byte, 1<<16)}
	if err := s.configure(fd); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *subscription) configure(fd int) error {
	// A large buffer needs CAP_NET_ADMIN; without it the kernel's limit holds.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return fmt.Errorf("receive buffer: %w", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	for _, group := range eventGroups() {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			return fmt.Errorf("group %d: %w", group, err)
		}
	}
	var err error
	s.conn, err = s.file.SyscallConn()
	return err
}

// receive waits for events. Their data is valid until the next call. The error
// is errLost after an overflow; close ends the wait with another.
func (s *subscription) receive() ([]syscall.NetlinkMessage, error) {
	var n int
	var from unix.Sockaddr
	var failed error
	err := s.conn.Read(func(fd uintptr) bool {
		n, from, failed = unix.Recvfrom(int(fd), s.buffer, 0)
		return !errors.Is(failed, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return nil, err
	case errors.Is(failed, unix.ENOBUFS):
		return nil, s.drain()
	case failed != nil:
		return nil, failed
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return nil, nil // not from the kernel
	}
	messages, err := syscall.ParseNetlinkMessage(s.buffer[:n])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	return messages, nil
}

// drain drops the events that still wait after an overflow. The kernel announces
// an overflow only once until the queue has been empty; events that it drops till
// then must be covered by the reading of everything that follows.
func (s *subscription) drain() error {
	err := s.conn.Read(func(fd uintptr) bool {
		for {
			_, _, err := unix.Recvfrom(int(fd), s.buffer, 0)
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return true
			}
		}
	})
	return errors.Join(err, errLost)
}

func (s *subscription) close() error { return s.file.Close() }
