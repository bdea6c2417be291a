// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// nextHops returns the nodes to which the router's kernel sends packets for an
// address, sorted.
func (i *installation) nextHops(ctx context.Context, vip netip.Addr) ([]string, error) {
	return i.nextHopsOf(ctx, netip.PrefixFrom(vip, vip.BitLen()))
}

// nextHopsOf returns the next hops of the route to exactly this prefix.
func (i *installation) nextHopsOf(ctx context.Context, prefix netip.Prefix) ([]string, error) {
	family := "-4"
	if prefix.Addr().Is6() {
		family = "-6"
	}
	out, err := i.Router.Run(ctx, "ip", family, "-json", "route", "show", prefix.String())
	if err != nil {
		return nil, err
	}
	type hop struct{ Gateway netip.Addr }
	var routes []struct {
		hop
		NextHops []hop
	}
	if err := json.Unmarshal([]byte(out), &routes); err != nil {
		return nil, fmt.Errorf("%w in %s", err, out)
	}
	nodes := []string{}
	for _, r := range routes {
		for _, h := range append(r.NextHops, r.hop) {
			for _, n := range i.Nodes() {
				if slices.Contains(n.Addresses, h.Gateway) {
					nodes = append(nodes, n.Name())
				}
			}
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// awaitRoutes waits until the router sends packets for the addresses to these nodes,
// by equal paths, and to no others.
func (i *installation) awaitRoutes(t *testing.T, vips []netip.Addr, nodes ...string) {
	t.Helper()
	slices.Sort(nodes)
	i.awaitHops(t, vips, fmt.Sprint(nodes), func(got []string) bool { return slices.Equal(got, nodes) })
}

// awaitHops waits until the router sends packets for the addresses to the right nodes.
func (i *installation) awaitHops(t *testing.T, vips []netip.Addr, want string, right func(nodes []string) bool) {
	t.Helper()
	for _, vip := range vips {
		cluster.Await(t, fmt.Sprintf("routes to %s by way of %s", vip, want), func() error {
			got, err := i.nextHops(t.Context(), vip)
			if err == nil && !right(got) {
				err = fmt.Errorf("they lead to %v", got)
			}
			return err
		})
	}
}

// awaitProxies waits until the kube-proxies of all nodes know the port of the addresses. A
// connection that a node's kernel has routed before has no translation for as long as
// the kernel tracks it, nor has a later one from the same port of the client.
func (i *installation) awaitProxies(t *testing.T, vips []netip.Addr, port int) {
	t.Helper()
	for _, vip := range vips {
		family := "ip"
		if vip.Is6() {
			family = "ip6"
		}
		key := fmt.Sprintf("%s . tcp . %d ", vip, port)
		for _, n := range i.Nodes() {
			cluster.Await(t, n.Name()+"'s kube-proxy to know "+key, func() error {
				known, err := n.Run(t.Context(), "nft", "list", "map", family, "kube-proxy", "service-ips")
				if err == nil && !strings.Contains(known, key) {
					err = fmt.Errorf("it knows %s", known)
				}
				return err
			})
		}
	}
}

// names returns the names of all nodes.
func (i *installation) names() []string {
	var all []string
	for _, n := range i.Nodes() {
		all = append(all, n.Name())
	}
	return all
}
