// SPDX-License-Identifier: Apache-2.0

package http

import (
	"embed"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"text/template"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// way is how requests get to servers.
type way struct {
	name string
	// draw returns the lab with Fairlead's balancers, and that many servers unless they are pods.
	draw func(servers int) (netlab.Topology, error)
	// file, if given, configures a program or the kernel in place of Fairlead. Its extension says
	// which.
	file string
	// through is the router's next hop to the only balancer that is used; empty: to all.
	through string
	// quick is set if --quick measures the way too.
	quick bool
}

// kubeProxyRules names rules that netlab writes.
const kubeProxyRules = "kube-proxy.nft"

// Names of ways that are compared.
const (
	l2dsr    = "l2dsr"
	ipip     = "ipip"
	nat      = "nat"
	iptables = "iptables"
	nginx    = "nginx"
	haproxy  = "haproxy"

	hostGateway   = "nat over host-gw"
	vxlan         = "nat over vxlan"
	dsrPods       = "dsr to pods"
	kubeProxyPods = "kube-proxy nftables to pods"

	gueOnNode, gueInPod = "gue on a node", "gue in a pod"
	natOnNode, natInPod = "nat on a node", "nat in a pod"
)

// direct are the ways to servers at addresses of their own, in one stage.
func direct() []way {
	translated := site(lb.NAT)
	return []way{
		{name: l2dsr, draw: site(lb.L2DSR), quick: true},
		{name: ipip, draw: site(lb.IPIP)},
		{name: "gue", draw: site(lb.GUE)},
		{name: nat, draw: translated, quick: true},
		{name: iptables, draw: translated, file: "dnat.iptables", quick: true},
		{name: "nftables", draw: translated, file: "dnat.nft"},
		{name: "kube-proxy iptables", draw: translated, file: "kube-proxy.iptables"},
		{name: "kube-proxy nftables", draw: translated, file: kubeProxyRules},
		{name: nginx, draw: translated, file: "nginx.conf", quick: true},
		{name: haproxy, draw: translated, file: "haproxy.cfg"},
	}
}

// toPods are the ways to pods of two nodes, over which the router spreads the requests.
func toPods() []way {
	return []way{
		{name: dsrPods, draw: nodes(lb.DSR), quick: true},
		{name: "nat to pods", draw: nodes(lb.NAT)},
		{name: "kube-proxy iptables to pods", draw: nodes(lb.NAT), file: "kube-proxy.iptables"},
		{name: kubeProxyPods, draw: nodes(lb.NAT), file: kubeProxyRules, quick: true},
	}
}

// places are the ways through a balancer in the namespace of a node, and through one in a pod.
func places() []way {
	gue, nat := pods(lb.GUE), pods(lb.NAT)
	return []way{
		{name: gueOnNode, draw: gue, through: "lb2"},
		{name: gueInPod, draw: gue, through: "node1"},
		{name: natOnNode, draw: nat, through: "lb2"},
		{name: natInPod, draw: nat, through: "node1"},
	}
}

// overlays are the ways to pods behind nodes, in the networks of two of flannel's back ends.
func overlays() []way {
	return []way{{name: hostGateway, draw: overlay(true)}, {name: vxlan, draw: overlay(false)}}
}

// costGroups are all ways, with those together that are compared.
func costGroups() [][]way { return [][]way{direct(), toPods(), places(), overlays()} }

// site draws servers that are on a switch with a balancer.
func site(mode lb.Forward) func(int) (netlab.Topology, error) {
	return func(servers int) (netlab.Topology, error) {
		return netlab.ECMP(netlab.ECMPOptions{Forward: mode, Balancers: 1, Servers: servers})
	}
}

// nodes draws two nodes that balance over the pods of both.
func nodes(mode lb.Forward) func(int) (netlab.Topology, error) {
	return func(int) (netlab.Topology, error) {
		return netlab.Nodes(netlab.NodesOptions{Nodes: 2, Forward: mode})
	}
}

// overlay draws pods of nodes beyond a balancer.
func overlay(hostGateway bool) func(int) (netlab.Topology, error) {
	return func(servers int) (netlab.Topology, error) {
		return netlab.Pods(netlab.PodsOptions{Balancers: 1, Nodes: servers, HostGateway: hostGateway})
	}
}

// pods draws the balancer web1, a pod, and lb2, which isn't one. Both run XDP in generic mode,
// so that they differ in their place only.
func pods(mode lb.Forward) func(int) (netlab.Topology, error) {
	return func(servers int) (netlab.Topology, error) {
		t, err := netlab.BalancerPods(netlab.BalancerPodsOptions{Nodes: 1, Servers: servers, Forward: mode})
		t.SetXDPMode("generic")
		return t, err
	}
}

// topology draws the lab of the way with one service, of HTTP over IPv4.
func (w way) topology(servers int) (netlab.Topology, error) {
	t, err := w.draw(servers)
	if err != nil {
		return t, err
	}
	t.SetOnly(t.Services[0])
	for i := range t.Hosts {
		h := &t.Hosts[i]
		h.Processes = slices.DeleteFunc(h.Processes, func(p netlab.Process) bool { return p.Name == "echo" })
		if w.file != "" && h.Role == netlab.Balancer {
			w.replace(h, t.Services[0])
		}
	}
	return t, nil
}

// replace has a host forward without Fairlead.
func (w way) replace(h *netlab.Host, service lb.Service) {
	h.Role, h.Agent, h.Processes, h.Socket, h.Rules = netlab.Router, nil, nil, "", ""
	if w.file == kubeProxyRules {
		h.Rules = netlab.KubeProxyRules([]lb.Service{service})
		return
	}
	text := render(w.file, service)
	h.Files = map[string]string{w.file: text}
	switch path.Ext(w.file) {
	case ".nft":
		h.Rules = text
	case ".conf":
		h.Processes = []netlab.Process{{Name: nginx, Args: []string{nginx, "-p", ".", "-c", w.file}}}
	case ".cfg":
		h.Processes = []netlab.Process{{Name: haproxy, Args: []string{haproxy, "-db", "-f", w.file}}}
	}
	if len(h.Processes) > 0 {
		h.Loopback = []netip.Addr{service.Address} // where they listen
	}
}

// rules reports whether iptables has to load the file.
func (w way) rules() bool { return path.Ext(w.file) == ".iptables" }

//go:embed files
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"share": share}).ParseFS(files, "files/*"))

// share is the probability of iptables' rule for the nth of some servers, if the rules before it
// don't match; empty: the rule always matches.
func share(nth, of int) string {
	if nth == of-1 {
		return ""
	}
	return fmt.Sprintf("%.10f", 1/float64(of-nth))
}

// render writes a file for the servers of a service.
func render(name string, service lb.Service) string {
	var servers []netip.AddrPort
	for _, b := range service.Backends {
		servers = append(servers, netip.AddrPortFrom(b.Address, b.Port))
	}
	var text strings.Builder
	err := templates.ExecuteTemplate(&text, name, map[string]any{"VIP": service.Address, "Servers": servers})
	if err != nil {
		panic(err) // never: all fields that the files name exist
	}
	return text.String()
}
