// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Values of linux/ip_vs.h.
const (
	flagPersistent = 0x0001 // IP_VS_SVC_F_PERSISTENT
	flagFallback   = 0x0008 // IP_VS_SVC_F_SCHED1: of mh and sh, another server if the hash's is unusable
	flagPort       = 0x0010 // IP_VS_SVC_F_SCHED2: of mh, the hash includes the client's port

	methodMasquerade = 0 // IP_VS_CONN_F_MASQ
	methodTunnel     = 2 // IP_VS_CONN_F_TUNNEL
	methodDirect     = 3 // IP_VS_CONN_F_DROUTE

	tunnelGUE = 1 // IP_VS_CONN_F_TUNNEL_TYPE_GUE
	// tunnelChecksum is IP_VS_TUNNEL_ENCAP_FLAG_CSUM: in IPv6, UDP has checksums.
	tunnelChecksum = 1
	guePort        = 6080
)

// id is the identity of an IPVS service: a firewall mark, or protocol, address and port.
type id struct {
	family   uint16 // AF_INET or AF_INET6
	mark     uint32
	protocol lb.Protocol
	address  netip.AddrPort
}

// idOf is the identity of a service's IPVS service.
func idOf(vip lb.VIP, mark uint32) id {
	i := id{family: familyOf(vip.Address), mark: mark}
	if mark == 0 {
		i.protocol, i.address = vip.Protocol, netip.AddrPortFrom(vip.Address, vip.Port)
	}
	return i
}

func familyOf(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// virtual is an IPVS service.
type virtual struct {
	id
	scheduler string
	flags     uint32
	// timeout of persistence, in seconds.
	timeout uint32
}

// server is a destination of an IPVS service.
type server struct {
	lb.BackendID
	method, weight uint32
	// upper is the number of connections from which on it gets no new ones; 0 is unlimited.
	// With the lower threshold 0 the kernel waits until there are fewer than three quarters.
	upper uint32
	// tunnel is the type of a tunnel, with its port and flags.
	tunnel                  uint8
	tunnelPort, tunnelFlags uint16
}

// description is an IPVS service with its servers.
type description struct {
	virtual virtual
	// servers are sorted by address and port.
	servers []server
}

// describe translates services that share an IPVS service: one, or the services of a
// firewall mark, which are alike. A backend without route stays without new flows.
func describe(services []*lb.Service, unreachable func(netip.Addr) bool) description {
	first := services[0]
	d := description{virtual: virtual{id: idOf(first.VIP, first.FirewallMark), timeout: seconds(first.AffinityTimeout)}}
	d.virtual.scheduler, d.virtual.flags = scheduling(first)
	scale := wholeWeight(services)
	byID := map[lb.BackendID]server{}
	for _, s := range services {
		for _, b := range s.Backends {
			if b.Down {
				continue
			}
			one := serverOf(s.Forward, serverID(services, b), b)
			one.upper = uint32(b.MaxConnections)
			if !unreachable(b.Address) {
				one.weight = uint32(b.Weight * scale)
				if b.Share != 0 {
					one.weight = uint32(b.Weight * b.Share)
				}
			}
			if other, known := byID[one.BackendID]; known {
				one.weight = min(one.weight, other.weight)
				one.upper = min(cmp.Or(one.upper, other.upper), cmp.Or(other.upper, one.upper))
			}
			byID[one.BackendID] = one
		}
	}
	for _, one := range byID {
		d.servers = append(d.servers, one)
	}
	slices.SortFunc(d.servers, func(a, b server) int { return a.Compare(b.BackendID) })
	return d
}

// scheduling returns IPVS's name and flags of a service's scheduler and affinity.
func scheduling(s *lb.Service) (name string, flags uint32) {
	name = s.Scheduler.String()
	switch s.Scheduler {
	case lb.SchedulerMaglev:
		name, flags = "mh", flagFallback
		if s.Affinity != lb.AffinityClient {
			flags |= flagPort
		}
	case lb.SchedulerSH:
		flags = flagFallback
	default:
	}
	if s.AffinityTimeout != 0 {
		flags |= flagPersistent
	}
	return name, flags
}

// seconds rounds up.
func seconds(d time.Duration) uint32 { return uint32((d + time.Second - 1) / time.Second) }

// wholeWeight is the factor of weights: with a backend in slow start they are counted in
// sixteenths.
func wholeWeight(services []*lb.Service) int {
	for _, s := range services {
		if slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Share != 0 }) {
			return lb.WholeShare
		}
	}
	return 1
}

// serverID is the address of a backend in IPVS. Port 0 is the packet's: with l2dsr, so that a change of the
// mode makes another server, and if services of a firewall mark have several ports.
func serverID(services []*lb.Service, b lb.Backend) lb.BackendID {
	if services[0].Forward == lb.L2DSR || slices.ContainsFunc(services, func(s *lb.Service) bool { return s.Port != services[0].Port }) {
		return netip.AddrPortFrom(b.Address, 0)
	}
	return b.ID()
}

func serverOf(f lb.Forward, to lb.BackendID, b lb.Backend) server {
	one := server{BackendID: to}
	switch f {
	case lb.L2DSR:
		one.method = methodDirect
	case lb.IPIP:
		one.method = methodTunnel
	case lb.GUE:
		one.method, one.tunnel, one.tunnelPort = methodTunnel, tunnelGUE, guePort
		if b.Address.Is6() {
			one.tunnelFlags = tunnelChecksum
		}
	default:
		one.method = methodMasquerade
	}
	return one
}

// states says which backends of a service are in use, as described.
func (d description) states(services []*lb.Service, svc *lb.Service, routes routes) dataplane.Programmed {
	out := dataplane.Programmed{Backends: make([]dataplane.BackendState, len(svc.Backends))}
	for i, b := range svc.Backends {
		st := dataplane.BackendState{ID: b.ID(), NextHop: routes[b.Address].hop}
		weight := 0
		at, found := slices.BinarySearchFunc(d.servers, serverID(services, b), func(s server, id lb.BackendID) int { return s.Compare(id) })
		if found {
			weight = int(d.servers[at].weight)
		}
		switch {
		case b.Down:
			st.Reason = "unhealthy"
		case routes[b.Address].err != "":
			st.Reason = routes[b.Address].err
		case b.Drained:
			st.Reason = "drained"
		case weight == 0:
			st.Reason = "weight is 0"
		default:
			st.InUse, st.RingEntries = true, weight
			out.RingSize += weight
		}
		out.Backends[i] = st
	}
	return out
}
