// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/kube"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/golden"
)

// decoder reads objects as they are written in manifests.
func decoder(t testing.TB) runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// xdpLimits are the limits of the XDP data plane, without properties that only IPVS has.
func xdpLimits() dataplane.Limits {
	l := dataplanetest.Limits()
	l.Schedulers, l.MaxConnections = nil, false
	l.Properties = slices.DeleteFunc(l.Properties, func(p string) bool { return p == "firewallMark" })
	return l
}

// vips is the pool of the addresses of all Services and LoadBalancers, for files whose comment
// doesn't name the kind.
var vips = &v1alpha1.AddressPool{
	ObjectMeta: metav1.ObjectMeta{Name: "vips"},
	Spec:       v1alpha1.AddressPoolSpec{Addresses: []v1alpha1.AddressRange{"198.51.100.0/24", "2001:db8::/64", "2001:db8:1::/64"}},
}

func newCache(l dataplane.Limits) *kube.Cache {
	return kube.NewCache(kube.Config{Node: "lb1", Limits: l, MaxServices: 4096, MaxBackends: 1 << 17, ASN: 65021})
}

// Each file has objects, and for each step the changes for the node lb1: changed and removed
// services, routes, and all problems. In the file "ipvs" the node has a data plane with schedulers.
func TestTranslate(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files, error %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			limits := xdpLimits()
			if filepath.Base(path) == "ipvs.txtar" {
				limits.Schedulers, limits.MaxConnections, limits.Properties = []lb.Scheduler{lb.SchedulerLC, lb.SchedulerWRR}, true, append(limits.Properties, "firewallMark")
			}
			w := newCache(limits)
			if !bytes.Contains(archive.Comment, []byte("AddressPool")) {
				w.Set(vips)
			}
			decoder := decoder(t)
			for i := range archive.Files {
				f := &archive.Files[i]
				if strings.HasSuffix(f.Name, ".yaml") {
					load(t, w, decoder, string(f.Data))
					continue
				}
				f.Data = []byte(describe(w.Flush(), w.Problems()))
			}
			golden.File(t, path, string(txtar.Format(archive)))
		})
	}
}

// load sets objects, or deletes those that have "delete:" in front.
func load(t testing.TB, w *kube.Cache, d runtime.Decoder, manifests string) {
	t.Helper()
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		if rest, found := strings.CutPrefix(strings.TrimSpace(text), "delete: "); found {
			fields := strings.Fields(rest)
			namespace, name, namespaced := strings.Cut(fields[1], "/")
			if !namespaced {
				namespace, name = "", namespace
			}
			w.Delete(kube.Object{Kind: kube.Kind(fields[0]), Namespace: namespace, Name: name})
			continue
		}
		obj, _, err := d.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		w.Set(obj.(metav1.Object))
	}
}

// bfdPaths describe BFD's paths that are set.
var bfdPaths = map[bgp.BFDPath]string{bgp.SingleHop: " single hop", bgp.Multihop: " multihop"}

// describe prints a change.
func describe(c kube.Change, problems []v1alpha1.NodeProblem) string {
	var b strings.Builder
	slices.SortFunc(c.Changed, func(x, y lb.Service) int { return x.VIP.Compare(y.VIP) })
	for i := range c.Changed {
		describeService(&b, &c.Changed[i])
	}
	for _, vip := range c.Removed {
		fmt.Fprintf(&b, "removed %s\n", vip)
	}
	for _, vip := range c.Leaving {
		fmt.Fprintf(&b, "left %s\n", vip)
	}
	if c.Routes != nil {
		for _, p := range c.Routes.Peers {
			fmt.Fprintf(&b, "peer %s: %s asn %d port %d hold %s restart %s", p.Name, p.Address, p.ASN, p.Port, p.HoldTime, p.RestartTime)
			if p.BFD != nil {
				fmt.Fprintf(&b, " bfd %s × %d%s", p.BFD.Interval, p.BFD.Multiplier, bfdPaths[p.BFD.Path])
			}
			if p.Key != nil {
				fmt.Fprintf(&b, " password of %d bytes", len(p.Key))
			}
			b.WriteString("\n")
		}
		for _, p := range c.Routes.Policies {
			if p.VLAN != 0 {
				fmt.Fprintf(&b, "policy %s in vlan %d via %s%s\n", p.Prefixes, p.VLAN, hop(p.NextHop4), hop(p.NextHop6))
				continue
			}
			fmt.Fprintf(&b, "policy %s aggregate %t communities %s%s prepend %d\n", p.Prefixes, p.Aggregate, p.Communities, p.LargeCommunities, p.Prepend)
		}
	}
	for _, p := range problems {
		fmt.Fprintf(&b, "problem: %s\n", p)
	}
	return b.String()
}

// hop is a next hop, empty for none.
func hop(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func describeService(b *strings.Builder, s *lb.Service) {
	fmt.Fprintf(b, "%s: %s %s", s.Name, s.VIP, s.Forward)
	if s.Unannounced {
		b.WriteString(" unannounced")
	}
	if s.Scheduler != lb.SchedulerMaglev {
		fmt.Fprintf(b, " scheduler %s", s.Scheduler)
	}
	if s.FirewallMark != 0 {
		fmt.Fprintf(b, " mark %d", s.FirewallMark)
	}
	if s.Affinity != lb.AffinityFlow {
		fmt.Fprintf(b, " affinity %s", s.Affinity)
	}
	if s.AffinityTimeout > 0 {
		fmt.Fprintf(b, " for %s", s.AffinityTimeout)
	}
	if s.Learn > 0 {
		fmt.Fprintf(b, " learns for %s", s.Learn)
	}
	if len(s.Sources.Allow)+len(s.Sources.Deny) > 0 {
		fmt.Fprintf(b, " allow %s deny %s", s.Sources.Allow, s.Sources.Deny)
	}
	if l := s.Limits; l != (lb.FlowLimits{}) {
		fmt.Fprintf(b, " limits %d, per source %d", l.NewFlows, l.NewFlowsPerSource)
	}
	if h := s.Health; h != nil {
		fmt.Fprintf(b, " health %s port %d path %q every %s", h.Type, h.Port, h.Path, h.Interval)
		if h.Passive {
			b.WriteString(" passive")
		}
	}
	b.WriteString("\n")
	if m := s.Membership; m.Self.IsValid() {
		fmt.Fprintf(b, "  as %s, with balancers %s\n", m.Self, m.Balancers)
	}
	if len(s.Balancers) > 0 {
		fmt.Fprintf(b, "  balanced by %s\n", s.Balancers)
	}
	for _, e := range s.Backends {
		fmt.Fprintf(b, "  %s weight %d", e.ID(), e.Weight)
		if e.Ending {
			b.WriteString(" ending")
		}
		if e.MonitorAddress.IsValid() {
			fmt.Fprintf(b, " monitored at %s", e.MonitorAddress)
		}
		if e.MonitorPort != 0 {
			fmt.Fprintf(b, " monitored at port %d", e.MonitorPort)
		}
		if e.MaxConnections != 0 {
			fmt.Fprintf(b, " up to %d connections", e.MaxConnections)
		}
		if e.Node.IsValid() {
			fmt.Fprintf(b, " on %s", e.Node)
		}
		if e.Outside {
			b.WriteString(" on no node")
		}
		if !e.MAC.IsZero() {
			fmt.Fprintf(b, " mac %s", e.MAC)
		}
		if e.Segment.Tagged() {
			fmt.Fprintf(b, " %s", e.Segment)
		}
		if e.TunnelEnd.IsValid() {
			fmt.Fprintf(b, " behind %s", e.TunnelEnd)
		}
		b.WriteString("\n")
	}
}
