// SPDX-License-Identifier: Apache-2.0

package podroute

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/internal/bgp"
)

// Annotation of a pod makes it a balancer pod: the prefixes of its VIPs, separated by commas.
const Annotation = "fairlead.io/vip-prefixes"

// pod has the needed fields of a balancer pod.
type pod struct {
	name string // with the namespace
	// addresses are the pod's own; none before it has started and after it has ended.
	addresses []netip.Addr
	// prefixes are masked.
	prefixes []netip.Prefix
	// ready says that its balancer forwards packets.
	ready bool
	// leaving is when the pod was deleted; zero if it wasn't.
	leaving time.Time
}

// readPod reads a pod with the annotation, whose namespace has a share.
func readPod(from *corev1.Pod, share *Share) (p pod, err error) {
	p.name = from.Namespace + "/" + from.Name
	if from.Spec.HostNetwork {
		return p, errors.New("hostNetwork: the node's own agent balances in the node's network")
	}
	if p.prefixes, err = parsePrefixes(from.Annotations[Annotation]); err != nil {
		return p, fmt.Errorf("annotation %s: %w", Annotation, err)
	}
	for _, prefix := range p.prefixes {
		if !share.allows(prefix) {
			return p, fmt.Errorf("annotation %s: %s is not for namespace %s, which has %s", Annotation, prefix, share.Namespace, share.Prefixes)
		}
	}
	if from.Status.Phase == corev1.PodSucceeded || from.Status.Phase == corev1.PodFailed {
		return p, nil
	}
	for _, ip := range from.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			p.addresses = append(p.addresses, a.Unmap())
		}
	}
	p.ready = slices.ContainsFunc(from.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return p, nil
}

// route leads a prefix to pods.
type route struct {
	prefix netip.Prefix
	// via are the pods' addresses, of the prefix's family, sorted.
	via []netip.Addr
}

// plan has the wanted routes of kernel and peers, sorted by prefix.
type plan struct {
	routes    []route
	announced []bgp.Route
	// next is when the plan changes by itself; zero for never.
	next time.Time
}

// candidates are the pods of one prefix by their addresses.
type candidates struct {
	serving, leaving, others []netip.Addr
	// left is when the last one of leaving was deleted.
	left time.Time
}

// decide returns the plan for pods. A prefix leads to all pods that are ready, by equal
// paths. While it has none it leads to the other ones, as packets may still arrive:
// routes of pods that end are announced with GRACEFUL_SHUTDOWN for a delay and then
// withdrawn.
func decide(pods []pod, now time.Time, delay time.Duration) (p plan) {
	all := map[netip.Prefix]*candidates{}
	for i := range pods {
		for _, prefix := range pods[i].prefixes {
			if all[prefix] == nil {
				all[prefix] = &candidates{}
			}
			all[prefix].add(&pods[i], prefix.Addr().Is4())
		}
	}
	for prefix, c := range all {
		via, announced := c.serving, bgp.Route{Prefix: prefix}
		switch end := c.left.Add(delay); {
		case len(c.serving) > 0:
			p.announced = append(p.announced, announced)
		case len(c.leaving) > 0 && now.Before(end):
			via, announced.GracefulShutdown = c.leaving, true
			p.announced = append(p.announced, announced)
			if p.next.IsZero() || end.Before(p.next) {
				p.next = end
			}
		case len(c.leaving) > 0:
			via = c.leaving
		default:
			via = c.others
		}
		if len(via) > 0 {
			slices.SortFunc(via, netip.Addr.Compare)
			p.routes = append(p.routes, route{prefix, slices.Compact(via)})
		}
	}
	slices.SortFunc(p.routes, func(a, b route) int { return a.prefix.Compare(b.prefix) })
	slices.SortFunc(p.announced, func(a, b bgp.Route) int { return a.Prefix.Compare(b.Prefix) })
	return p
}

// permitted returns the routes whose prefixes have none of the reserved addresses: a route to a pod would cut
// the node off from its network. It returns the other prefixes, and why.
func permitted(all []route, reserved []netip.Addr) (routes []route, refused []netip.Prefix, err error) {
	for _, r := range all {
		i := slices.IndexFunc(reserved, r.prefix.Contains)
		if i < 0 {
			routes = append(routes, r)
			continue
		}
		refused = append(refused, r.prefix)
		err = errors.Join(err, fmt.Errorf("route %s: refused, as %s is an address or a next hop of this node", r.prefix, reserved[i]))
	}
	return routes, refused, err
}

// add adds a pod by its address of the family, if it has one.
func (c *candidates) add(p *pod, four bool) {
	i := slices.IndexFunc(p.addresses, func(a netip.Addr) bool { return a.Is4() == four })
	switch {
	case i < 0:
	case p.ready && p.leaving.IsZero():
		c.serving = append(c.serving, p.addresses[i])
	case !p.leaving.IsZero():
		c.leaving = append(c.leaving, p.addresses[i])
		if p.leaving.After(c.left) {
			c.left = p.leaving
		}
	default:
		c.others = append(c.others, p.addresses[i])
	}
}
