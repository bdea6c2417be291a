// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// requestTimeout bounds the wait for an answer of the kernel, which comes in
// microseconds unless a socket is broken.
const requestTimeout = 5 * time.Second

// markFairlead is the originator (NDA_PROTOCOL, one of the numbers of
// rtnetlink's rtm_protocol that nobody has taken) of neighbours that Fairlead
// made managed. It tells a later process which ones to give back.
const markFairlead = 0xfa

// rtnetlink asks the kernel over sockets that stay in the network namespace in
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
	all, err := k.handle.LinkList()
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
	all, err := k.handle.AddrList(nil, netlink.FAMILY_ALL)
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

// route asks for the forwarding table's entry (RTM_F_FIB_MATCH, kernel 4.13) and
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

// neighbour asks for a single entry (kernel 5.0). No entry is the zero neighbour.
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

// probe asks for an entry that the kernel keeps resolved (NTF_EXT_MANAGED,
// kernel 5.16), and to resolve it now (NTF_USE). An older kernel ignores the
// first wish and answers the second once, which is why the table asks again.
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
		return nil // the entry or its interface is gone
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
