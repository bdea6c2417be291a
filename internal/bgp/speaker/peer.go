// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/session"
	"fairlead.io/fairlead/internal/host/rtnl"
)

// peer announces the routes to one peer, with the next hops that they have towards it.
type peer struct {
	*Keeper
	// first closes Ready at the first set. A session without routes before that would
	// make a peer drop those that it kept of a former agent.
	first func()

	// announcing is held while routes are announced, and guards them and the session whose OPEN came last; nil before.
	announcing sync.Mutex
	routes     []bgp.Route
	open       *session.Session
}

func startPeer(local bgp.Local, config bgp.Peer, dial Dialer, onEstablished func(), log *slog.Logger) *peer {
	log = log.With("peer", config.Address, "asn", config.ASN)
	ready := make(chan struct{})
	p := &peer{first: sync.OnceFunc(func() { close(ready) })}
	p.Keeper = Keep(KeeperOptions{
		Local: local, Peer: config, Log: log, Dial: dial, Ready: ready, Waiting: "waiting for the first routes",
		Begin: func(conn *session.Pending, restarted bool) *session.Session {
			return session.Begin(conn, session.Options{Local: local, Peer: config, Restarted: restarted, OnOpen: p.opened})
		},
		OnEstablished: onEstablished,
	})
	return p
}

// set makes routes all that is announced to the peer. It doesn't wait for the peer.
func (p *peer) set(routes []bgp.Route) error {
	p.announcing.Lock()
	defer p.announcing.Unlock()
	p.routes = routes
	p.first()
	if p.open == nil {
		return nil // opened does it
	}
	if err := p.announce(); err != nil {
		return fmt.Errorf("peer %s: %w", p.Peer.Address, err)
	}
	return nil
}

// leave withdraws all routes, waits until the withdrawals are sent, and stops.
func (p *peer) leave(ctx context.Context) error {
	err := p.set(nil)
	if s := p.Session(); s != nil && err == nil {
		err = s.AwaitWithdrawn(ctx)
	}
	p.Stop(session.AdministrativeShutdown)
	if err != nil {
		return fmt.Errorf("peer %s: withdraw: %w", p.Peer.Address, err)
	}
	return nil
}

// opened is called when the peer's OPEN has arrived, whose capabilities decide which routes it gets.
func (p *peer) opened(s *session.Session) {
	p.announcing.Lock()
	defer p.announcing.Unlock()
	p.open = s
	if err := p.announce(); err != nil {
		p.Log.Error("routes not announced", "error", err)
	}
}

func (p *peer) announce() error {
	own, open := ownHops(p.Peer.Address, p.open.LocalAddress()), p.open.Status().Open
	var routes []bgp.Route
	omitted, reason := 0, ""
	for _, route := range p.routes {
		hop, failure := own.nextHop(&route, open)
		if failure != "" {
			omitted, reason = omitted+1, failure
			continue
		}
		route.NextHop = hop
		routes = append(routes, route)
	}
	p.omitted(omitted, reason)
	return p.open.Announce(routes)
}

// hops are the node's addresses towards a peer, one of each family; the zero Addr
// if there is none.
type hops struct{ v4, v6 netip.Addr }

// ownHops returns the session's local address, and the other family's address on
// the interface towards the peer.
func ownHops(peer, local netip.Addr) hops {
	if local.Is4() {
		return hops{v4: local, v6: onInterfaceTo(peer, netlink.FAMILY_V6)}
	}
	return hops{v4: onInterfaceTo(peer, netlink.FAMILY_V4), v6: local}
}

// onInterfaceTo is the node's address of a family on the interface towards peer.
func onInterfaceTo(peer netip.Addr, family int) netip.Addr {
	routes, err := netlink.RouteGet(net.IP(peer.AsSlice()))
	if err != nil || len(routes) == 0 {
		return netip.Addr{}
	}
	link := netlink.LinkAttrs{Index: routes[0].LinkIndex}
	addrs, err := rtnl.Dump(func() ([]netlink.Addr, error) {
		return netlink.AddrList(&netlink.Device{LinkAttrs: link}, family)
	})
	if err != nil {
		return netip.Addr{}
	}
	return choose(addrs)
}

// unusable are the flags of addresses that can't be reached yet, or not for long.
const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED | unix.IFA_F_TEMPORARY

// choose returns the first address that others can reach. It prefers one with a
// subnet to a host address, which may be a VIP.
func choose(addrs []netlink.Addr) (chosen netip.Addr) {
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		ones, bits := a.Mask.Size()
		switch {
		case !ok || a.Scope != unix.RT_SCOPE_UNIVERSE || a.Flags&unusable != 0:
		case ones < bits:
			return addr.Unmap()
		case !chosen.IsValid():
			chosen = addr.Unmap()
		}
	}
	return chosen
}

// nextHop is the next hop of a route, or why it has none.
func (h hops) nextHop(route *bgp.Route, open *session.Open) (hop netip.Addr, failure string) {
	const noIPv6Hops = "the peer accepts no IPv6 next hops for IPv4 routes (RFC 8950)"
	own, family, accepted := h.v4, "IPv4", open.IPv4
	if route.Prefix.Addr().Is6() {
		own, family, accepted = h.v6, "IPv6", open.IPv6
	} else if !own.IsValid() && open.IPv4OverIPv6 {
		own = h.v6
	}
	hop = cmp.Or(route.NextHop, own)
	switch {
	case !accepted:
		failure = "the peer accepts no " + family + " routes"
	case !hop.IsValid():
		failure = "the node has no " + family + " address on the interface towards the peer"
		if family == "IPv4" {
			failure += ", and " + noIPv6Hops
		}
	case family == "IPv4" && hop.Is6() && !open.IPv4OverIPv6:
		failure = noIPv6Hops
	}
	return hop, failure
}
