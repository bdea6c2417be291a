// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// kubeProxyRules is the file of rules in a node's directory.
const kubeProxyRules = "kube-proxy.nft"

// KubeProxy makes all balancers nodes whose kernel balances, as kube-proxy has it do in its
// nftables mode for Services of type LoadBalancer with externalTrafficPolicy Cluster: each new
// connection goes to a backend at random, from the node's address. If balancers speak BGP, FRR
// announces the first pair of VIPs in their place.
func (t *Topology) KubeProxy(services []lb.Service) {
	for i := range t.Hosts {
		h := &t.Hosts[i]
		switch {
		case h.Role == Balancer:
			h.kubeProxy(services)
		case h.Role == Router && h.Software == string(FRR):
			h.Files["bgpd.conf"] += render("bgpd-nodes.conf", routerASN)
		}
	}
}

func (h *Host) kubeProxy(services []lb.Service) {
	speaker := h.Agent.BGP
	h.Agent, h.Processes, h.Socket = nil, nil, ""
	h.Sysctls = map[string]string{"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"}
	h.Rules = KubeProxyRules(services)
	if speaker != nil {
		frr(h, render("bgpd-node.conf", map[string]any{
			"RouterID": speaker.RouterID, "ASN": speaker.ASN, "Peer": speaker.Peers[0], "Announced": hostPrefixes(vips()),
		}))
	}
}

// KubeProxyRules returns a transaction of nft(8) that replaces all rules of kube-proxy's nftables
// mode. Backends with a weight, of which each service has one, are used equally.
func KubeProxyRules(services []lb.Service) string {
	families := map[string][]lb.Service{}
	for _, s := range services {
		s.Backends = slices.DeleteFunc(slices.Clone(s.Backends), func(b lb.Backend) bool { return b.Weight == 0 })
		family := "ip"
		if s.Address.Is6() {
			family = "ip6"
		}
		families[family] = append(families[family], s)
	}
	return render(kubeProxyRules, families)
}

// SyncKubeProxy replaces the rules of a node, and then deletes the tracked UDP flows to servers
// that aren't backends any more, as kube-proxy does: an answer that is on its way is lost then
// (RefusedDatagrams). Other flows, and all TCP connections, stay. Backends of weight 0 are
// Kubernetes' terminating endpoints.
func SyncKubeProxy(ctx context.Context, l *Lab, node string, services []lb.Service) error {
	if err := l.State().Host(node).ReplaceFile(kubeProxyRules, KubeProxyRules(services)); err != nil {
		return err
	}
	if _, err := l.Run(ctx, node, "nft", "-f", kubeProxyRules); err != nil {
		return err
	}
	stale := staleFlows{}
	for _, s := range services {
		if s.Protocol == lb.UDP {
			stale[netip.AddrPortFrom(s.Address, s.Port)] = s.Backends
		}
	}
	err := l.Do(node, func() error { return errors.Join(stale.remove(unix.AF_INET), stale.remove(unix.AF_INET6)) })
	if err != nil {
		return fmt.Errorf("%s: tracked flows: %w", node, err)
	}
	return nil
}

// noPorts are the counters of UDP and of UDP over IPv6 in the files of /proc/net that have them.
var noPorts = map[string]*regexp.Regexp{
	"snmp":  regexp.MustCompile(`(?m)^Udp: \d+ (\d+)`),
	"snmp6": regexp.MustCompile(`(?m)^Udp6NoPorts\s+(\d+)`),
}

// RefusedDatagrams is the number of datagrams to a host that it had no socket for (UdpNoPorts): on
// a node with kube-proxy, the answers that came after their flow was deleted.
func RefusedDatagrams(l *Lab, host string) (n int, err error) {
	err = l.Do(host, func() error {
		for file, counter := range noPorts {
			// The thread's, not the process's: only the thread is in the namespace.
			text, err := os.ReadFile(filepath.Join("/proc/thread-self/net", file))
			if err != nil {
				return err
			}
			found := counter.FindSubmatch(text)
			if found == nil {
				return fmt.Errorf("%s: %s has no UdpNoPorts", host, file)
			}
			counted, err := strconv.Atoi(string(found[1]))
			if err != nil {
				return err
			}
			n += counted
		}
		return nil
	})
	return n, err
}

// staleFlows matches tracked UDP flows to servers that aren't backends. It has the backends by
// the services' addresses.
type staleFlows map[netip.AddrPort][]lb.Backend

// remove deletes the flows of a family in the calling thread's namespace.
func (s staleFlows) remove(family netlink.InetFamily) error {
	for {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, s)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s staleFlows) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	backends, known := s[flowEnd(f.Forward.DstIP, f.Forward.DstPort)]
	server := flowEnd(f.Reverse.SrcIP, f.Reverse.SrcPort)
	return known && f.Forward.Protocol == unix.IPPROTO_UDP &&
		!slices.ContainsFunc(backends, func(b lb.Backend) bool { return netip.AddrPortFrom(b.Address, b.Port) == server })
}

func flowEnd(ip net.IP, port uint16) netip.AddrPort {
	address, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(address.Unmap(), port)
}
