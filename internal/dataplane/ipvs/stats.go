// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// count is the traffic of a service's clients. It grows also if the kernel's counters begin
// again, as with another firewall mark.
type count struct {
	total dataplane.Traffic
	// seen are the kernel's counters, as last read.
	seen counted
}

// traffic is in the words of the data plane: packets from clients, bytes of IP packets.
func (c counted) traffic() dataplane.Traffic {
	return dataplane.Traffic{Packets: c.packets, Bytes: c.bytes, NewFlows: c.connections}
}

// observe adds the kernel's counts of a service since they were last read.
func (p *Plane) observe(vip lb.VIP, now counted, exit string) {
	c := p.counts[vip]
	if c == nil {
		c = &count{}
		p.counts[vip] = c
	}
	if now.packets < c.seen.packets {
		c.seen = counted{}
	}
	more := now.traffic().Sub(c.seen.traffic())
	c.seen = now
	c.total = c.total.Add(more)
	p.exits[exit] += more.Packets
}

// count reads the kernel's counters of a service that is about to change.
func (p *Plane) count(vip lb.VIP) error {
	if !p.shown(vip) {
		return nil
	}
	i := idOf(vip, p.owned[vip].mark)
	v, err := p.kernel.ipvs.virtual(i)
	if v == nil || err != nil {
		return err
	}
	servers, err := p.kernel.ipvs.servers(i)
	if err == nil {
		p.observe(vip, v.counted, p.exit(vip, servers))
	}
	return err
}

// shown says whether the counters of the VIP's IPVS service are shown as the VIP's: of
// those with the same firewall mark, the first's.
func (p *Plane) shown(vip lb.VIP) bool {
	for _, other := range p.sharing(vip, p.owned[vip].mark) {
		if other.Compare(vip) < 0 {
			return false
		}
	}
	return true
}

// exit is the way that a service's packets leave, as its name in dataplane.Stats.
func (p *Plane) exit(vip lb.VIP, servers []liveServer) string {
	if s, known := p.services[vip]; known {
		return "forward_" + s.Forward.String()
	}
	forward := lb.NAT
	if len(servers) > 0 {
		switch s := servers[0]; {
		case s.method == methodDirect:
			forward = lb.L2DSR
		case s.method == methodTunnel && s.tunnel == tunnelGUE:
			forward = lb.GUE
		case s.method == methodTunnel:
			forward = lb.IPIP
		}
	}
	return "forward_" + forward.String()
}

// Stats reads the kernel's counters of all services of Fairlead's.
func (p *Plane) Stats(ctx context.Context) (dataplane.Stats, error) {
	out := dataplane.Stats{Services: map[lb.VIP]dataplane.ServiceStats{}}
	err := p.eachService(ctx, func(vip lb.VIP, v liveVirtual, servers []liveServer) { out.Services[vip] = p.stats(vip, v, servers) })
	if err != nil {
		return dataplane.Stats{}, fmt.Errorf("stats: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out.Exits = maps.Clone(p.exits)
	return out, nil
}

// stats returns the counters of a service.
func (p *Plane) stats(vip lb.VIP, v liveVirtual, servers []liveServer) (s dataplane.ServiceStats) {
	first := p.shown(vip)
	if first {
		p.observe(vip, v.counted, p.exit(vip, servers))
	}
	if c := p.counts[vip]; c != nil {
		s.Traffic = c.total
	}
	for _, b := range p.backends(vip, servers) {
		var share dataplane.Traffic
		if first {
			for _, one := range serversOf(servers, b) {
				share = share.Add(one.traffic())
			}
		}
		s.Backends, s.Shares = append(s.Backends, b), append(s.Shares, share)
	}
	return s
}

// eachService calls fn, with the lock held, for each service of Fairlead's that IPVS has.
// Those that it has no more are reported: another program has flushed IPVS or the tables.
func (p *Plane) eachService(ctx context.Context, fn func(lb.VIP, liveVirtual, []liveServer)) error {
	return p.do(ctx, func() error {
		all, err := p.kernel.ipvs.virtuals()
		if err != nil {
			return err
		}
		tables, err := p.kernel.tables.present()
		if err != nil {
			return err
		}
		byID := make(map[id]liveVirtual, len(all))
		for _, v := range all {
			byID[v.id] = v
		}
		for vip, e := range p.owned {
			v, found := byID[idOf(vip, e.mark)]
			if _, known := p.services[vip]; known && (!found || len(tables) == 0) {
				p.stale.Add(vip)
			}
			if !found {
				continue
			}
			servers, err := p.kernel.ipvs.servers(v.id)
			if err != nil {
				return err
			}
			fn(vip, v, servers)
		}
		return nil
	})
}

// backends returns the backends of a service, sorted; for an earlier process's service, IPVS's servers, at the VIP's
// port if they have none.
func (p *Plane) backends(vip lb.VIP, servers []liveServer) []lb.Backend {
	if s, known := p.services[vip]; known {
		return lb.SortBackends(s.Backends)
	}
	var all []lb.Backend
	for _, s := range servers {
		b := lb.Backend{Address: s.Addr(), Port: cmp.Or(s.Port(), vip.Port)}
		if len(all) == 0 || all[len(all)-1].ID() != b.ID() {
			all = append(all, b)
		}
	}
	return all
}

// serversOf are IPVS's servers of a backend, of its service's mode before too.
func serversOf(servers []liveServer, b lb.Backend) []liveServer {
	at, _ := slices.BinarySearchFunc(servers, b.Address, func(s liveServer, a netip.Addr) int { return s.Addr().Compare(a) })
	var of []liveServer
	for _, s := range servers[at:] {
		if s.Addr() != b.Address {
			break
		}
		if s.Port() == 0 || s.Port() == b.Port {
			of = append(of, s)
		}
	}
	return of
}

// CountFlows counts the active connections of all backends: with TCP the established ones,
// with UDP all that have not timed out. Connections of a firewall mark count for its first
// VIP.
func (p *Plane) CountFlows(ctx context.Context) (dataplane.FlowCounts, error) {
	counts := dataplane.FlowCounts{}
	err := p.eachService(ctx, func(vip lb.VIP, _ liveVirtual, servers []liveServer) {
		if !p.shown(vip) {
			return
		}
		for _, b := range p.backends(vip, servers) {
			n := 0
			for _, s := range serversOf(servers, b) {
				n += s.active
				if vip.Protocol == lb.UDP {
					n += s.inactive
				}
			}
			if n > 0 {
				if counts[vip] == nil {
					counts[vip] = map[lb.BackendID]int{}
				}
				counts[vip][b.ID()] = n
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("flows: %w", err)
	}
	return counts, nil
}
