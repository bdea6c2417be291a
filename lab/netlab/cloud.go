// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// CloudOptions are options of the lab "cloud".
type CloudOptions struct {
	// Forward is any mode. With lb.DSR each server is a node of its own.
	Forward lb.Forward
	// Balancers is their number, 1 to MaxBalancers, Servers 1 to MaxServers.
	Balancers, Servers int
	// Router is FRR if the router learns the routes to the VIPs by BGP, as in a network of
	// one's own. With "" they are static: the cloud's route table.
	Router RouterKind
	// Checked are the roles of the machines, Balancer and Server, whose packets the router
	// checks as clouds do: those from a machine have its address as source, those for it
	// have its address as destination.
	Checked []Role
}

// Cloud is ECMP without a switch: each balancer and each server has a link to the router
// and nothing else, as in clouds whose machines have an address with a prefix of full
// length, and a gateway. No machine reaches another one's Ethernet address.
//
//	client ── router ─┬─ lb1
//	                  ├─ lb2 …
//	                  ├─ server1
//	                  └─ server2 …
//
// Addresses and services are the same as ECMP's. All links have an MTU of 1500. The
// router's nftables table "inet cloud" counts packets that it drops for their source
// (forged) and for their destination (foreign).
func Cloud(o CloudOptions) (Topology, error) {
	drawn := o.Forward
	if o.Forward == lb.DSR {
		drawn = lb.NAT
	}
	t, err := ECMP(ECMPOptions{Forward: drawn, MTU: defaultMTU, Balancers: o.Balancers, Servers: o.Servers, Router: o.Router})
	if err != nil {
		return Topology{}, err
	}
	t.Name = "cloud"
	if o.Forward == lb.DSR {
		t.toNodes()
	}
	t.replaceSwitch()
	t.Host("router").Rules = cloudRules(&t, o.Checked)
	return t, nil
}

// toNodes makes each backend of a topology with lb.NAT one of lb.DSR, on a node with the
// backend's address.
func (t *Topology) toNodes() {
	nodes := map[netip.Addr]netip.Addr{}
	for i := range t.Services {
		t.Services[i].Forward = lb.DSR
		for _, b := range t.Services[i].Backends {
			nodes[b.Address] = b.Address
		}
	}
	t.SetServices(t.Services)
	for i := range t.Hosts {
		if agent := t.Hosts[i].Agent; agent != nil {
			agent.Nodes = nodes
		}
	}
}

// replaceSwitch replaces the switch's links by links to the router, whose interfaces have
// the machines' names and all the same addresses.
func (t *Topology) replaceSwitch() {
	t.Hosts = slices.DeleteFunc(t.Hosts, func(h Host) bool { return h.Role == Switch })
	router := t.Host("router")
	router.Interfaces = slices.DeleteFunc(router.Interfaces, func(i Interface) bool { return i.Name == eth1 })
	t.Links = slices.DeleteFunc(t.Links, func(l Link) bool { return l.A == End{router.Name, eth1} })
	gateway := addresses(serviceNetwork, routerNumber)
	for i := range t.Links {
		l := &t.Links[i]
		if l.B.Host != switchName {
			continue
		}
		machine := t.Host(l.A.Host)
		own := machine.iface(l.A.Interface)
		all := hostAddresses(own.Addresses)
		own.Addresses = hostPrefixes(all)
		// FRR accepts neighbours and next hops that are peers of its interfaces. A machine's own
		// peer would keep its kernel from answering ARP requests with arp_ignore=1.
		router.Interfaces = append(router.Interfaces, Interface{Name: machine.Name, Addresses: hostPrefixes(gateway), Peers: all})
		l.B = End{router.Name, machine.Name}
		machine.Routes = slices.Insert(machine.Routes, 0,
			Route{Destination: hostPrefix(gateway[0]), Device: own.Name}, Route{Destination: hostPrefix(gateway[1]), Device: own.Name})
		// The kernel adds the IPv6 route to a peer later.
		router.Routes = slices.Insert(router.Routes, 0, Route{Destination: hostPrefix(all[1]), Device: machine.Name})
	}
}

// cloudRules are the router's nftables rules.
func cloudRules(t *Topology, checked []Role) string {
	var machines []Interface
	for i := range t.Hosts {
		if h := &t.Hosts[i]; slices.Contains(checked, h.Role) {
			machines = append(machines, Interface{Name: h.Name, Addresses: h.iface(eth0).Addresses})
		}
	}
	return render("cloud.nft", machines)
}
