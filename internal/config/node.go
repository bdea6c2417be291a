// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// Node describes the machine the agent runs on. Only DrainTimeout can be changed
// while the agent runs.
type Node struct {
	// Name is unique among nodes and names the folder of BPF pins: at most 63
	// characters of a to z, 0 to 9, dot and hyphen. The default is the host name.
	Name string
	// Interfaces receive packets for VIPs; at least one, all distinct.
	Interfaces []string
	// TunnelEnds are the node's addresses that receive VXLAN and Geneve frames with
	// packets for VIPs; all distinct. Services in such segments need at least one.
	TunnelEnds []netip.Addr
	// TunnelPeers have the outer source addresses of these frames; at least one with
	// TunnelEnds, none without.
	TunnelPeers []netip.Prefix
	NAT         NAT
	// DrainTimeout is the longest time a stopping agent waits for traffic to cease;
	// 0 doesn't wait.
	DrainTimeout time.Duration
}

const (
	defaultDrainTimeout = 30 * time.Second
	maxDrainTimeout     = time.Hour
)

const maxNodeName = 63

// maxInterfaceName is IFNAMSIZ of linux/if.h without its final zero.
const maxInterfaceName = 15

func readNode(v value, n *Node) {
	n.setDefaults()
	v.readFields(append(n.common(),
		optional("name", &n.Name, nodeName),
		required("interfaces", &n.Interfaces, interfaces),
	)...)
	n.checkTunnels(v)
	defaultToHost(v, &n.Name)
}

func (n *Node) setDefaults() { n.NAT.Ports, n.DrainTimeout = defaultNATPorts(), defaultDrainTimeout }

// common returns the fields that nodes have with and without Kubernetes.
func (n *Node) common() []field {
	return []field{
		optional("tunnelEnds", &n.TunnelEnds, tunnelEnds),
		optional("tunnelPeers", &n.TunnelPeers, tunnelPeers),
		optional("nat", &n.NAT, readNAT),
		optional("drainTimeout", &n.DrainTimeout, durationWithin(0, maxDrainTimeout)),
	}
}

// maxTunnelEnds and maxTunnelPeers are the sizes of the data plane's tables.
const maxTunnelEnds, maxTunnelPeers = 64, 1024

func tunnelEnds(v value, to *[]netip.Addr) {
	addresses(v, to)
	if len(*to) > maxTunnelEnds {
		v.failf("%d addresses are too many: want at most %d", len(*to), maxTunnelEnds)
	}
}

func tunnelPeers(v value, to *[]netip.Prefix) {
	list(prefix)(v, to)
	if len(*to) > maxTunnelPeers {
		v.failf("%d prefixes are too many: want at most %d", len(*to), maxTunnelPeers)
	}
}

// checkTunnels rejects tunnel end points without peers: only the outer source address says
// who sent a segment's frame.
func (n *Node) checkTunnels(v value) {
	if v.failedAny("tunnelEnds", "tunnelPeers") {
		return
	}
	switch ends, peers := len(n.TunnelEnds), len(n.TunnelPeers); {
	case ends > 0 && peers == 0:
		v.at("tunnelEnds").failf("want tunnelPeers too: the prefixes of the hosts that send VXLAN and Geneve frames to this node")
	case ends == 0 && peers > 0:
		v.at("tunnelPeers").failf("only with tunnelEnds")
	}
}

// nodeName reads the name of a node or reflector.
func nodeName(v value, to *string) { checked(text, checkNodeName)(v, to) }

// defaultToHost sets the field "name" of v to the host name if it isn't given.
func defaultToHost(v value, to *string) {
	if *to != "" || v.failedAny("name") {
		return
	}
	host, err := os.Hostname()
	*to = strings.ToLower(host)
	if err = errors.Join(err, checkNodeName(*to)); err != nil {
		v.at("name").failf("missing, and the host name is unsuitable: %w", err)
	}
}

// checkNodeName allows names that are safe as a folder name and on a command line.
func checkNodeName(name string) error {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-'
	}
	switch {
	case len(name) > maxNodeName:
		return fmt.Errorf("%d characters are too many: want at most %d", len(name), maxNodeName)
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) ||
		strings.Trim(name, ".-") != name:
		return fmt.Errorf("bad node name %q: want a to z, 0 to 9, dots and hyphens, beginning and ending with a letter or digit", name)
	}
	return nil
}

func interfaces(v value, to *[]string) {
	nonEmpty("interface", distinct(text, checkInterface))(v, to)
}

// distinct reads a list of distinct elements that pass a check.
func distinct[T comparable](read reader[T], check func(T) error) reader[[]T] {
	return func(v value, all *[]T) {
		list(func(v value, to *T) {
			var one, none T
			read(v, &one)
			switch err := check(one); {
			case one == none: // reported by read
			case err != nil:
				v.failf("%w", err)
			case slices.Contains(*all, one):
				v.failf("%v is given twice", one)
			default:
				*to = one
			}
		})(v, all)
	}
}

// addresses reads distinct unicast addresses.
func addresses(v value, to *[]netip.Addr) { distinct(address, lb.CheckAddress)(v, to) }

// checkInterface follows dev_valid_name of the kernel's net/core/dev.c.
func checkInterface(name string) error {
	if len(name) > maxInterfaceName || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r\x00") {
		return fmt.Errorf("bad interface name %q: want at most %d characters without slash, colon and space",
			name, maxInterfaceName)
	}
	return nil
}

// Kind is a type of data plane.
type Kind string

// The data planes. KindAuto gives each service to the first of them that can serve it.
const (
	KindAuto Kind = "auto"
	KindXDP  Kind = "xdp"
	KindIPVS Kind = "ipvs"
)

// XDPMode is the hook at which XDP programs run.
type XDPMode string

// The modes. XDPAuto is native if the interface's driver supports it, else generic.
const (
	XDPAuto    XDPMode = "auto"
	XDPNative  XDPMode = "native"
	XDPGeneric XDPMode = "generic"
)

// Dataplane configures the node's packet forwarding. It can't be changed while the
// agent runs.
type Dataplane struct {
	Kind    Kind
	XDPMode XDPMode
	// FilterPods has packets for pods of this node, in the modes that translate, pass the kernel's
	// forwarding path and so netfilter, with which network plugins enforce policies.
	FilterPods bool
	// HashSeed keys the choice of backends. It must be equal on all nodes that share
	// VIPs: otherwise a flow that moves between nodes changes its backend.
	HashSeed uint64
	// Services and Backends are the capacities of the tables of services, and of the
	// backends of all services: two versions of a service while it changes.
	Services, Backends int
	// Flows is the capacity of the flow table, for all services together.
	Flows int
	// NATSessions is the capacity of the session table of services with mode nat.
	NATSessions int
}

// Bounds of Dataplane.Flows (about 100 bytes each) and Dataplane.NATSessions (about
// 430 bytes each).
const (
	minFlows     = 1 << 10
	maxFlows     = 1 << 24
	defaultFlows = 1 << 18
)

// Bounds of Dataplane.Services, whose numbers have 16 bits in sessions, and of
// Dataplane.Backends (about 363 bytes each).
const (
	maxServices     = math.MaxUint16
	defaultServices = 1 << 13
	minBackends     = 1 << 10
	maxBackends     = 1 << 20
	defaultBackends = 1 << 17
)

func readDataplane(v value, p *Dataplane) {
	v.readFields(
		optional("kind", &p.Kind, oneOf(KindAuto, KindXDP, KindIPVS)),
		optional("xdpMode", &p.XDPMode, oneOf(XDPAuto, XDPNative, XDPGeneric)),
		optional("filterPods", &p.FilterPods, flag),
		optional("hashSeed", &p.HashSeed, number[uint64](0, math.MaxUint64)),
		optional("services", &p.Services, number[int](1, maxServices)),
		optional("backends", &p.Backends, number[int](minBackends, maxBackends)),
		optional("flows", &p.Flows, number[int](minFlows, maxFlows)),
		optional("natSessions", &p.NATSessions, number[int](minFlows, maxFlows)),
	)
}

// NAT has the node's source addresses and ports for flows of services with mode nat.
// It can't be changed while the agent runs.
type NAT struct {
	// Addresses are distinct, at most MaxNATAddresses of each family. A family without
	// any uses the preferred source address of the route to the backend.
	Addresses []netip.Addr
	Ports     Ports
}

// Ports is a range of ports, both ends included.
type Ports struct {
	First, Last uint16
}

// String returns for example "1024-32767".
func (p Ports) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

// MaxNATAddresses is the maximum number of addresses of each family.
const MaxNATAddresses = 64

// defaultNATPorts are below Linux's ephemeral ports (net.ipv4.ip_local_port_range),
// which the node's own connections use, health probes among them.
func defaultNATPorts() Ports { return Ports{First: 1024, Last: 32767} }

func readNAT(v value, n *NAT) {
	v.readFields(
		optional("addresses", &n.Addresses, natAddresses),
		optional("ports", &n.Ports, readPorts),
	)
}

func natAddresses(v value, to *[]netip.Addr) {
	addresses(v, to)
	families := map[bool]int{}
	for _, a := range *to {
		families[a.Is4()]++
	}
	if most := max(families[true], families[false]); most > MaxNATAddresses {
		v.failf("%d addresses of one family are too many: want at most %d", most, MaxNATAddresses)
	}
}

func readPorts(v value, p *Ports) {
	v.readFields(
		optional("first", &p.First, port),
		optional("last", &p.Last, port),
	)
	if v.failedAny("first", "last") {
		return
	}
	if p.Last < p.First {
		v.failf("the first port %d is above the last port %d", p.First, p.Last)
	}
	for one := p.First; slices.Contains(tunnelPorts, one); one++ {
		if one == p.Last {
			v.failf("%s: want a port of no tunnel, as those of VXLAN (4789), GUE (6080) and Geneve (6081) aren't used", p)
			return
		}
	}
}

// tunnelPorts are the ports of VXLAN, GUE and Geneve, which no session gets.
var tunnelPorts = []uint16{4789, 6080, 6081}

// Observe configures the status page. It can't be changed while the agent runs.
type Observe struct {
	// Listen is the TCP address of the status page, the metrics and the API; the
	// zero value disables them. Port 0 selects a free port.
	Listen netip.AddrPort
	// Explicit is set if the file has the address: the agent doesn't start if it can't
	// listen there. If it can't listen at the default address it starts without a page.
	Explicit bool
}

// listenNone disables the listener.
const listenNone = "none"

// defaultListen is a loopback address.
func defaultListen() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:9571") }

func observe(v value, o *Observe) {
	v.readFields(optional("listen", o, listenAddress))
}

func listenAddress(v value, o *Observe) {
	const want = "an address and a port, such as 127.0.0.1:9571, or none"
	text, ok := v.text(want)
	if !ok {
		return
	}
	o.Explicit = true
	if text == listenNone {
		o.Listen = netip.AddrPort{}
		return
	}
	listen, err := netip.ParseAddrPort(text)
	if err != nil || listen.Addr().Is4In6() || listen.Addr().IsMulticast() {
		v.failf("bad address %q: want %s", text, want)
		return
	}
	o.Listen = listen
}

// String returns the value as written in a file.
func (o Observe) String() string {
	if !o.Listen.IsValid() {
		return listenNone
	}
	return fmt.Sprint(o.Listen)
}
