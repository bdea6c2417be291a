// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"net/netip"
	"slices"

	"fairlead.io/fairlead/internal/lb"
)

// Role is a host's function, which decides the sysctls of its namespace.
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

// Topology is a whole network, as a pure value.
type Topology struct {
	Name  string
	Hosts []Host
	// Links join every interface of every host with exactly one other.
	Links []Link
	// Services that the balancers are configured with.
	Services []lb.Service
	// A lab is up when all Learned routes exist and all Probes are answered.
	Learned []LearnedRoute
	Probes  []Probe
}

// Host is a network namespace and its processes.
type Host struct {
	Name string
	Role Role
	// Software is the implementation where there is a choice, such as "frr".
	Software   string
	Interfaces []Interface
	Overlays   []Overlay
	Bridges    []Bridge
	// Loopback addresses are put on lo: the VIPs of a server.
	Loopback   []netip.Addr
	Routes     []Route
	Neighbours []Neighbour
	// Rules are nftables rules.
	Rules string
	// Sysctls below "net.", by dotted name, are set in addition to the role's.
	Sysctls map[string]string
	// Files are written into the host's directory before anything is started.
	Files map[string]string
	// Processes are started in this order.
	Processes []Process
	// Agent, if not nil, is the content of the balancer's AgentFile, unless it is in
	// Files.
	Agent *AgentSettings
	// Owner owns the host's directory and files, for programs that drop root; empty:
	// root.
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
	// Peers, if given, are the addresses of the link's other end, one for each of
	// Addresses: the link is one from point to point.
	Peers []netip.Addr
	// VLAN, if not 0, makes the interface an access port of that VLAN (IEEE 802.1Q).
	VLAN uint16
	// Geneve, if not 0, makes the interface's addresses receiving ends of that Geneve
	// segment; inner frames have the interface's MAC address.
	Geneve uint32
	// Container keeps the kernel's offloads of an interface between a node and a
	// container.
	Container bool
}

// Overlay is a VXLAN device (RFC 7348) of a host.
type Overlay struct {
	Name string
	// ID is the segment's network identifier, 1 to 2^24-1.
	ID uint32
	// Local is the host's tunnel end point, one of its own addresses.
	Local netip.Addr
	MAC   lb.MAC
	// MTU of packets in the segment in bytes; 0 means 1500.
	MTU int
	// Addresses are the host's in the segment with the length of their network.
	Addresses []netip.Prefix
	// Members are the tunnel end points to which the host floods frames.
	Members []netip.Addr
	// Stations are hosts of the segment that aren't learned.
	Stations []Station
}

// Station is the tunnel end point of a host in a segment.
type Station struct {
	MAC       lb.MAC
	TunnelEnd netip.Addr
}

// Bridge connects interfaces of a host, which unlike a switch has addresses on it.
type Bridge struct {
	Name string
	// Ports are interfaces of the host.
	Ports []string
	// Addresses are the host's at the bridge with the length of their network.
	Addresses []netip.Prefix
}

// Link is a veth pair.
type Link struct {
	A, B End
	// MTU of both ends in bytes; 0 means 1500.
	MTU int
}

// End names an interface by its host's name and its own.
type End struct{ Host, Interface string }

func (e End) String() string { return e.Host + "/" + e.Interface }

// Route is a route through one gateway, or through several of equal cost. Without a
// gateway the destination is on the device's link.
type Route struct {
	Destination netip.Prefix
	Gateways    []netip.Addr
	// Device, if given, is the interface of a single gateway outside of its networks
	// ("onlink").
	Device string
}

// LearnedRoute is a route that a host's router learns by a routing protocol.
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

// Process is a program that runs in a host until the lab is removed, in the host's
// directory. Its output is appended to NAME.log there.
type Process struct {
	Name string `json:"name"`
	// Args begins with the program, which is looked up in PATH if it has no
	// slash.
	Args []string `json:"args"`
	// Env is added to the environment, as KEY=value.
	Env []string `json:"env,omitempty"`
}

// Probe is a request that a lab has to answer.
type Probe struct {
	// From is the client.
	From string
	// Protocol is TCP for an HTTP request for / and UDP for a datagram to an
	// echo server (see Echo).
	Protocol lb.Protocol
	Address  netip.AddrPort
	// Answers are the names of the servers; each of them must answer.
	Answers []string
}

// Host returns the host of that name, or nil.
func (t *Topology) Host(name string) *Host {
	return find(t.Hosts, func(h *Host) bool { return h.Name == name })
}

// find returns the first element that is wanted, or nil.
func find[T any](list []T, wanted func(*T) bool) *T {
	for i := range list {
		if wanted(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// devices are the host's interfaces, and its overlays and bridges as such.
func (h *Host) devices() []Interface {
	all := slices.Clone(h.Interfaces)
	for _, o := range h.Overlays {
		all = append(all, Interface{Name: o.Name, Addresses: o.Addresses})
	}
	for _, b := range h.Bridges {
		all = append(all, Interface{Name: b.Name, Addresses: b.Addresses})
	}
	return all
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

// SetOnly has only this service, whose VIP is of IPv4: no other one is probed or learned.
func (t *Topology) SetOnly(service lb.Service) {
	t.SetServices([]lb.Service{service})
	t.Probes = t.Probes[:1]
	t.Learned = slices.DeleteFunc(t.Learned, func(r LearnedRoute) bool { return r.Prefix.Addr().Is6() })
}

// SetXDPMode sets the XDP mode of all balancers: "native", "generic" or "auto".
func (t *Topology) SetXDPMode(mode string) {
	for i := range t.Hosts {
		if agent := t.Hosts[i].Agent; agent != nil {
			agent.XDPMode = mode
		}
	}
}

// iface returns the host's interface of that name, or nil.
func (h *Host) iface(name string) *Interface {
	return find(h.Interfaces, func(i *Interface) bool { return i.Name == name })
}
