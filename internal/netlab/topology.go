// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// Role is what a host is in a lab. It decides how the kernel of its namespace
// is set up.
type Role string

// The roles.
const (
	Client    Role = "client"
	Router    Role = "router"    // forwards, and hashes flows over equal routes
	Switch    Role = "switch"    // bridges all its interfaces
	Balancer  Role = "balancer"  // has a BPF file system of its own
	Server    Role = "server"    // has VIPs on its loopback, silent in ARP
	Reflector Role = "reflector" // BGP route reflector
)

// Topology is a whole network. Topologies are pure values: making one touches
// nothing.
type Topology struct {
	// Name says which topology it is, for people.
	Name  string
	Hosts []Host
	// Links join every interface of every host with exactly one other.
	Links []Link
	// Services are what the balancers are configured to balance.
	Services []lb.Service
	// Learned routes must be there, and Probes must all be answered, before the lab
	// counts as up.
	Learned []LearnedRoute
	Probes  []Probe
}

// Host is one network namespace with what runs in it.
type Host struct {
	Name string
	Role Role
	// Software says what makes the host what it is where there is a choice, as
	// "frr" does of a router; for people.
	Software   string
	Interfaces []Interface
	Overlays   []Overlay
	Bridges    []Bridge
	// Loopback addresses are put on lo: the VIPs of a server.
	Loopback   []netip.Addr
	Routes     []Route
	Neighbours []Neighbour
	// Rules are the host's of nftables, in the language of nft.
	Rules string
	// Sysctls below "net." are set beside those of the role, by their dotted name.
	Sysctls map[string]string
	// Files are written into the host's directory before anything is started.
	Files map[string]string
	// Processes are started in this order.
	Processes []Process
	// Agent, if not nil, is what the balancer's AgentFile says, unless Files has
	// one of that name.
	Agent *AgentSettings
	// Owner is the account that the host's directory and files belong to, for
	// programs that give root up; empty: root.
	Owner string
	// Socket is the balancer's control socket, a file name in the host's
	// directory; empty if there is none.
	Socket string
}

// Interface is one end of a link.
type Interface struct {
	Name string
	// MAC is the interface's Ethernet address; the zero MAC leaves it to the kernel.
	MAC lb.MAC
	// Addresses are the interface's own with the length of their network.
	Addresses []netip.Prefix
	// VLAN, if not 0, is the IEEE 802.1Q network that the interface belongs to:
	// all it sends is tagged, and it receives nothing else.
	VLAN uint16
	// Geneve, if not 0, is the identifier of the segment whose frames the host
	// accepts at the interface's addresses: it gets what is inside, which has to be
	// for the interface's MAC address.
	Geneve uint32
	// Container leaves the interface, an end of a link between a node and a
	// container on it, as the kernel makes it: its checksums and its segmentation
	// are the other end's to do.
	Container bool
}

// Link is a veth pair.
type Link struct {
	A, B End
	// MTU is that of both ends in bytes; 0 means 1500.
	MTU int
}

// End names an interface by its host's name and its own.
type End struct{ Host, Interface string }

func (e End) String() string { return e.Host + "/" + e.Interface }

// Route leads to a network through one gateway, or through several of equal
// cost. Without any, what it leads to is at its device.
type Route struct {
	Destination netip.Prefix
	Gateways    []netip.Addr
	// Device, if given, is where a single gateway is found, though none of the
	// device's networks has its address ("onlink").
	Device string
}

// LearnedRoute is one that a host's router gets by a routing protocol.
type LearnedRoute struct {
	Host   string
	Prefix netip.Prefix
	// Via are the names of the next hops.
	Via []string
}

// Neighbour is a permanent entry of the neighbour table.
type Neighbour struct {
	Interface string
	Address   netip.Addr
	MAC       lb.MAC
}

// Process is a program that runs in a host until the lab is taken down. Its
// working directory is the host's directory, so that Args name files there
// without a path; what it prints is appended to NAME.log.
type Process struct {
	Name string `json:"name"`
	// Args begins with the program, which is looked up in PATH if it has no
	// slash.
	Args []string `json:"args"`
	// Env is added to the environment, as KEY=value.
	Env []string `json:"env,omitempty"`
}

// Probe is a request that a lab answers when it is ready.
type Probe struct {
	// From is the host that asks.
	From string
	// Protocol is TCP for an HTTP request for / and UDP for a datagram to an
	// echo server (see Echo).
	Protocol lb.Protocol
	Address  netip.AddrPort
	// Answers are the names of the servers that are to answer; every one of them
	// must be heard.
	Answers []string
}

// Host returns the host of that name, or nil.
func (t *Topology) Host(name string) *Host {
	for i := range t.Hosts {
		if t.Hosts[i].Name == name {
			return &t.Hosts[i]
		}
	}
	return nil
}

// SetServices replaces the services in the topology and in the settings of all
// balancers.
func (t *Topology) SetServices(services []lb.Service) {
	t.Services = services
	for i := range t.Hosts {
		if agent := t.Hosts[i].Agent; agent != nil {
			agent.Services = services
		}
	}
}

// device reports whether the host has an interface or an overlay of that name.
func (h *Host) device(name string) bool {
	return h.iface(name) != nil || slices.ContainsFunc(h.Overlays, func(o Overlay) bool { return o.Name == name }) ||
		slices.ContainsFunc(h.Bridges, func(o Bridge) bool { return o.Name == name })
}

// iface returns the host's interface of that name, or nil.
func (h *Host) iface(name string) *Interface {
	for i := range h.Interfaces {
		if h.Interfaces[i].Name == name {
			return &h.Interfaces[i]
		}
	}
	return nil
}
