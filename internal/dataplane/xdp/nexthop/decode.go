// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// apply hands one message of rtnetlink(7) to the table.
func apply(t *table, m *syscall.NetlinkMessage) error {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return applyLink(t, m)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return applyNeighbour(t, m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return applyAddress(t, m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return applyRoute(t, m)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		t.rerouteAll()
	}
	return nil
}

func applyLink(t *table, m *syscall.NetlinkMessage) error {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return shortMessage(m)
	}
	// A bridge tells of its ports in messages of its own family, also when a
	// port leaves it; they aren't about the device.
	if m.Data[0] != unix.AF_UNSPEC {
		return nil
	}
	header := unix.NlMsghdr(m.Header)
	l, err := netlink.LinkDeserialize(&header, m.Data)
	if err != nil {
		return err
	}
	if m.Header.Type == unix.RTM_DELLINK {
		t.linkGone(l.Attrs().Index)
		return nil
	}
	t.linkChanged(linkOf(l))
	return nil
}

func applyNeighbour(t *table, m *syscall.NetlinkMessage) error {
	key, n, err := decodeNeighbour(m.Data)
	if err != nil {
		return err
	}
	if m.Header.Type == unix.RTM_DELNEIGH {
		n = neighbour{}
	}
	t.neighbourChanged(key, n)
	return nil
}

// decodeNeighbour reads the body of RTM_NEWNEIGH and its like. It is ours to
// read because netlink.Neigh doesn't have the originator.
func decodeNeighbour(b []byte) (neighbourKey, neighbour, error) {
	if len(b) < unix.SizeofNdMsg {
		return neighbourKey{}, neighbour{}, fmt.Errorf("neighbour message of %d bytes", len(b))
	}
	attrs, err := nl.ParseRouteAttr(b[unix.SizeofNdMsg:])
	if err != nil {
		return neighbourKey{}, neighbour{}, fmt.Errorf("neighbour message: %w", err)
	}
	// struct ndmsg: family and padding (4 bytes), ifindex (4), state (2), flags,
	// type.
	native := nl.NativeEndian()
	key := neighbourKey{index: int(native.Uint32(b[4:]))}
	n := neighbour{state: native.Uint16(b[8:]), learned: b[10]&netlink.NTF_EXT_LEARNED != 0}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == netlink.NDA_DST:
			key.address = addressOf(a.Value)
		case a.Attr.Type == netlink.NDA_LLADDR && len(a.Value) == len(n.mac):
			n.mac = lb.MAC(a.Value)
		case a.Attr.Type == netlink.NDA_FLAGS_EXT && len(a.Value) == 4:
			n.managed = native.Uint32(a.Value)&netlink.NTF_EXT_MANAGED != 0
		case a.Attr.Type == netlink.NDA_PROTOCOL && len(a.Value) == 1:
			n.marked = a.Value[0] == markFairlead
		}
	}
	// The mark outlives the management.
	n.marked = n.marked && n.managed
	return key, n, nil
}

func applyAddress(t *table, m *syscall.NetlinkMessage) error {
	if len(m.Data) < unix.SizeofIfAddrmsg {
		return shortMessage(m)
	}
	attrs, err := nl.ParseRouteAttr(m.Data[unix.SizeofIfAddrmsg:])
	if err != nil {
		return fmt.Errorf("address message: %w", err)
	}
	// struct ifaddrmsg: family, prefix length, flags, scope, ifindex (4 bytes).
	index := int(nl.NativeEndian().Uint32(m.Data[4:]))
	var own netip.Addr
	for _, a := range attrs {
		// IFA_ADDRESS is the peer's where there is an IFA_LOCAL.
		if a.Attr.Type == unix.IFA_LOCAL || (a.Attr.Type == unix.IFA_ADDRESS && !own.IsValid()) {
			own = addressOf(a.Value)
		}
	}
	t.addressChanged(index, own)
	return nil
}

func applyRoute(t *table, m *syscall.NetlinkMessage) error {
	if len(m.Data) < unix.SizeofRtMsg {
		return shortMessage(m)
	}
	msg := nl.DeserializeRtMsg(m.Data)
	var to netip.Addr
	switch msg.Family {
	case unix.AF_INET:
		to = netip.IPv4Unspecified()
	case unix.AF_INET6:
		to = netip.IPv6Unspecified()
	default:
		return nil
	}
	if msg.Flags&unix.RTM_F_CLONED != 0 {
		return nil // what the kernel caches for one destination is no route
	}
	attrs, err := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return fmt.Errorf("route message: %w", err)
	}
	table := int(msg.Table)
	for _, a := range attrs {
		switch {
		case a.Attr.Type == unix.RTA_DST:
			to = addressOf(a.Value)
		case a.Attr.Type == unix.RTA_TABLE && len(a.Value) == 4:
			table = int(nl.NativeEndian().Uint32(a.Value))
		}
	}
	t.routeChanged(netip.PrefixFrom(to, int(msg.Dst_len)), table)
	return nil
}

func shortMessage(m *syscall.NetlinkMessage) error {
	return fmt.Errorf("message of type %d has only %d bytes", m.Header.Type, len(m.Data))
}
