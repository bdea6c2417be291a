// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/host/rtnl"
	"fairlead.io/fairlead/internal/lb"
)

// requestTimeout bounds the wait for an answer of the kernel, which comes in
// microseconds unless a socket is broken.
const requestTimeout = 5 * time.Second

// markFairlead is the originator (NDA_PROTOCOL, one of the numbers of
// rtnetlink's rtm_protocol that is not assigned) of neighbours that Fairlead
// made managed, so that a later process releases them.
const markFairlead = 0xfa

// rtnetlink queries the kernel over sockets that stay in the network namespace in
// which they were opened.
type rtnetlink struct {
	handle  *netlink.Handle
	sockets map[int]*nl.SocketHandle
}

// openKernel opens sockets in the calling thread's network namespace.
func openKernel() (*rtnetlink, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, err
	}
	k := &rtnetlink{handle, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}}
	if err := k.configure(socket); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

func (k *rtnetlink) configure(socket *nl.NetlinkSocket) error {
	timeout := unix.NsecToTimeval(requestTimeout.Nanoseconds())
	return errors.Join(
		k.handle.SetSocketTimeout(requestTimeout),
		socket.SetSendTimeout(&timeout),
		socket.SetReceiveTimeout(&timeout),
	)
}

func (k *rtnetlink) close() {
	k.handle.Close()
	for _, s := range k.sockets {
		s.Close()
	}
}

func (k *rtnetlink) links() ([]link, error) {
	all, err := rtnl.Dump(k.handle.LinkList)
	if err != nil {
		return nil, err
	}
	links := make([]link, len(all))
	for i, l := range all {
		links[i] = linkOf(l)
	}
	return links, nil
}

func (k *rtnetlink) addresses() ([]address, error) {
	all, err := rtnl.Dump(func() ([]netlink.Addr, error) { return k.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	var local []address
	for _, a := range all {
		if l, ok := localAddress(a); ok {
			local = append(local, l)
		}
	}
	return local, nil
}

// route looks up the forwarding table's entry (RTM_F_FIB_MATCH, kernel 4.13) and
// not for the kernel's choice for one packet: the entry has all paths. It does
// so without NETLINK_GET_STRICT_CHK, under which the kernel refuses the flag
// RTM_F_LOOKUP_TABLE for IPv6, which netlink always sets.
func (k *rtnetlink) route(to netip.Addr) route {
	found, err := k.handle.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return noRoute(err)
	}
	if len(found) == 0 {
		return noRoute(unix.ENETUNREACH)
	}
	return routeOf(&found[0])
}

// neighbour reads a single entry (kernel 5.0). No entry is the zero neighbour.
func (k *rtnetlink) neighbour(key neighbourKey) (neighbour, error) {
	req := k.request(unix.RTM_GETNEIGH, 0)
	addNeighbour(req, key, 0)
	answer, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if errors.Is(err, unix.ENOENT) {
		return neighbour{}, nil
	}
	if err != nil || len(answer) == 0 {
		return neighbour{}, err
	}
	_, n, err := decodeNeighbour(answer[0])
	return n, err
}

// probe requests an entry that the kernel keeps resolved (NTF_EXT_MANAGED,
// kernel 5.16), and to resolve it now (NTF_USE). An older kernel ignores the
// first request and honours the second once, which is why the table repeats it.
func (k *rtnetlink) probe(key neighbourKey, exists bool) error {
	// An entry that appeared meanwhile may be permanent: it is left alone.
	mode := unix.NLM_F_CREATE | unix.NLM_F_EXCL
	if exists {
		mode = unix.NLM_F_REPLACE
	}
	req := k.request(unix.RTM_NEWNEIGH, unix.NLM_F_ACK|mode)
	addNeighbour(req, key, netlink.NTF_USE)
	req.AddData(nl.NewRtAttr(netlink.NDA_FLAGS_EXT, nl.Uint32Attr(netlink.NTF_EXT_MANAGED)))
	req.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, nl.Uint8Attr(markFairlead)))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	switch {
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOENT):
		return nil // it came or went meanwhile, of which there is an event
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("the kernel's neighbour table is full (net.%s.neigh.default.gc_thresh3)", sysctlFamily(key.address))
	}
	return err
}

// release takes NTF_EXT_MANAGED from an entry: a replacement without it does. It
// has to carry NTF_USE, or else it would also take the MAC address.
func (k *rtnetlink) release(key neighbourKey) error {
	req := k.request(unix.RTM_NEWNEIGH, unix.NLM_F_ACK|unix.NLM_F_REPLACE)
	addNeighbour(req, key, netlink.NTF_USE)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN) {
		return nil // the entry or its interface was removed
	}
	return err
}

func (k *rtnetlink) request(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = k.sockets
	return req
}

func addNeighbour(req *nl.NetlinkRequest, key neighbourKey, flags uint8) {
	req.AddData(&netlink.Ndmsg{
		Family: uint8(nl.GetIPFamily(net.IP(key.address.AsSlice()))),
		Index:  uint32(key.index),
		Flags:  flags,
	})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, key.address.AsSlice()))
}

func sysctlFamily(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

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
	// A bridge reports its ports in messages of its own family, also when a
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
	t.neighbours.changed(key, n)
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
		return nil // a cache entry for one destination is not a route
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
