// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/host/rtnl"
	"fairlead.io/fairlead/internal/lb"
)

// VIPs are local by routes of this protocol number and metric, in the kernel's table of local
// addresses. The metric differs from the metric of the route to an interface's address.
const (
	routeProtocol = 0xfa
	routeMetric   = 0xfa
)

// routes are those to backends.
type routes map[netip.Addr]route

// route is the first step to a backend.
type route struct {
	// hop is for people, for example "eth0" or "eth0 via 10.0.2.1"; err says why there is none.
	hop, err string
}

func (r routes) unreachable(a netip.Addr) bool { return r[a].err != "" }

// of returns those to a service's backends.
func (r routes) of(s *lb.Service) routes {
	own := routes{}
	for _, b := range s.Backends {
		if found, known := r[b.Address]; known && !b.Down {
			own[b.Address] = found
		}
	}
	return own
}

// routesOf looks up the routes to backends that aren't down, of services of one mode.
func (k *kernel) routesOf(services ...*lb.Service) routes {
	found := routes{}
	links := map[int]string{}
	for _, s := range services {
		for _, b := range s.Backends {
			if _, known := found[b.Address]; !known && !b.Down {
				found[b.Address] = k.routeTo(b.Address, s.Forward, links)
			}
		}
	}
	return found
}

// routeTo looks up one; links are the names of interfaces by their indices.
func (k *kernel) routeTo(a netip.Addr, forward lb.Forward, links map[int]string) route {
	found, err := k.rtnetlink.RouteGet(a.AsSlice())
	if err != nil || len(found) == 0 {
		return route{err: fmt.Sprintf("no route to %s: %v", a, err)}
	}
	switch found[0].Type {
	case unix.RTN_UNICAST, unix.RTN_LOCAL:
	default:
		return route{err: fmt.Sprintf("no route to %s", a)}
	}
	index := found[0].LinkIndex
	if links[index] == "" {
		links[index] = fmt.Sprintf("interface %d", index)
		if l, err := k.rtnetlink.LinkByIndex(index); err == nil {
			links[index] = l.Attrs().Name
		}
	}
	gateway := found[0].Gw
	switch {
	case gateway == nil:
		return route{hop: links[index]}
	case forward == lb.L2DSR:
		return route{err: fmt.Sprintf("%s is behind gateway %s: l2dsr needs it directly connected", a, gateway)}
	}
	return route{hop: links[index] + " via " + gateway.String()}
}

// localRoute is the route that makes an address local.
func (k *kernel) localRoute(a netip.Addr) (*netlink.Route, error) {
	loopback, err := k.rtnetlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("interface lo: %w", err)
	}
	r := &netlink.Route{
		Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Protocol: routeProtocol, Priority: routeMetric, LinkIndex: loopback.Attrs().Index,
		Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
	}
	if a.Is4() {
		r.Scope = unix.RT_SCOPE_HOST
	}
	return r, nil
}

// addLocal makes an address local.
func (k *kernel) addLocal(a netip.Addr) error {
	r, err := k.localRoute(a)
	if err == nil {
		err = k.rtnetlink.RouteAdd(r)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("local route to %s: %w", a, err)
	}
	return nil
}

// removeLocal undoes addLocal.
func (k *kernel) removeLocal(a netip.Addr) error {
	r, err := k.localRoute(a)
	if err == nil {
		err = k.rtnetlink.RouteDel(r)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("local route to %s: %w", a, err)
	}
	return nil
}

// localRoutes returns the addresses that are local by addLocal.
func (k *kernel) localRoutes() (map[netip.Addr]bool, error) {
	filter := &netlink.Route{Protocol: routeProtocol, Table: unix.RT_TABLE_LOCAL}
	found, err := rtnl.Dump(func() ([]netlink.Route, error) {
		return k.rtnetlink.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("local routes: %w", err)
	}
	local := map[netip.Addr]bool{}
	for _, r := range found {
		if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			local[a.Unmap()] = true
		}
	}
	return local, nil
}

// watchRoutes delivers a value after routes, addresses or interfaces have changed, until done
// is closed.
func (k *kernel) watchRoutes(done <-chan struct{}) (<-chan struct{}, error) {
	c, err := mdnetlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	for _, group := range []uint32{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	} {
		if err := c.JoinGroup(group); err != nil {
			return nil, errors.Join(fmt.Errorf("watch routes: %w", err), c.Close())
		}
	}
	changed := make(chan struct{}, 1)
	go notify(c, changed)
	go func() {
		<-done
		_ = c.Close()
	}()
	return changed, nil
}

// notify passes the arrival of messages on, also of those that were lost, until the
// connection is closed.
func notify(c *mdnetlink.Conn, changed chan<- struct{}) {
	for {
		messages, err := c.Receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		if err == nil && !slices.ContainsFunc(messages, matters) {
			continue
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// matters says whether a message is about something other than the local route of a VIP.
func matters(m mdnetlink.Message) bool {
	const protocol = 5 // of struct rtmsg in linux/rtnetlink.h
	isRoute := m.Header.Type == unix.RTM_NEWROUTE || m.Header.Type == unix.RTM_DELROUTE
	return !isRoute || len(m.Data) <= protocol || m.Data[protocol] != routeProtocol
}

// settleTime is how long changes of routes are collected: an interface that comes up makes
// several.
const settleTime = 100 * time.Millisecond

// watch reports services to whose backends routes have changed, until the plane is closed.
func (p *Plane) watch(changed <-chan struct{}) {
	for {
		select {
		case <-changed:
		case <-p.done:
			return
		}
		select {
		case <-time.After(settleTime):
		case <-p.done:
			return
		}
		for _, vip := range p.rerouted() {
			p.stale.Add(vip)
		}
	}
}

// rerouted returns the services to whose backends routes differ from those that they were
// programmed with, or whose address an interface got or lost.
func (p *Plane) rerouted() []lb.VIP {
	p.mu.Lock()
	defer p.mu.Unlock()
	var vips []lb.VIP
	if p.closed {
		return nil
	}
	err := p.kernel.namespace.do(func() error {
		own, err := p.kernel.interfaceAddresses()
		for vip, s := range p.services {
			if !maps.Equal(p.kernel.routesOf(s.Service), s.routes) || own[vip.Address] == p.kernel.tables.closed[vip.Address] {
				vips = append(vips, vip)
			}
		}
		return err
	})
	if err != nil {
		p.log.Error("routes to backends are unknown", "error", err)
	}
	return vips
}
