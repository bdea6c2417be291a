// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/internal/report"
	"fairlead.io/fairlead/internal/spec"
)

// maxPageAddresses is how many addresses the page shows; the JSON has all.
const maxPageAddresses = 500

// overview is the whole cluster, as the controller's caches have it.
type overview struct {
	Groups []groupOverview `json:"groups"`
	Nodes  []nodeOverview  `json:"nodes"`
	// Addresses belong to Services and LoadBalancers. Requests without address are among them.
	Addresses []addressOverview `json:"addresses"`
}

// groupOverview is a LoadBalancerGroup.
type groupOverview struct {
	Name string `json:"name"`
	v1alpha1.LoadBalancerGroupStatus
	// Problems are the messages of conditions that don't hold.
	Problems []string `json:"problems,omitempty"`
}

// nodeOverview is a node that is in a group or has an agent.
type nodeOverview struct {
	Name string `json:"name"`
	// Group is empty for a node that is in none.
	Group string `json:"group,omitempty"`
	// Ready says that the node and its agent are ready. There is no Report otherwise: it may be
	// of long ago.
	Ready    bool                         `json:"ready"`
	Report   *v1alpha1.BalancerNodeStatus `json:"report,omitempty"`
	Problems []string                     `json:"problems,omitempty"`
}

// addressOverview is an address of a Service or a LoadBalancer, or its request for one.
type addressOverview struct {
	Address string `json:"address,omitempty"`
	// Object is for example "Service default/web".
	Object string `json:"object"`
	Group  string `json:"group,omitempty"`
	// AnnouncedBy are the nodes of the group that announce it.
	AnnouncedBy []string `json:"announcedBy"`
	Problems    []string `json:"problems,omitempty"`
}

// Announced is the list of nodes as text.
func (a addressOverview) Announced() string { return cmp.Or(strings.Join(a.AnnouncedBy, ", "), "–") }

// overview reads the caches.
func (o *deps) overview(ctx context.Context) (overview, error) {
	var (
		groups    v1alpha1.LoadBalancerGroupList
		nodes     corev1.NodeList
		pods      corev1.PodList
		reports   v1alpha1.BalancerNodeList
		services  corev1.ServiceList
		balancers v1alpha1.LoadBalancerList
	)
	for _, l := range []client.ObjectList{&groups, &reports, &services, &balancers} {
		if err := o.List(ctx, l); err != nil {
			return overview{}, err
		}
	}
	if err := o.listNodes(ctx, &nodes, &pods); err != nil {
		return overview{}, err
	}
	current := currentReports(nodes.Items, pods.Items, reports.Items)
	members := map[string][]*report.Node{}
	for i := range groups.Items {
		members[groups.Items[i].Name] = reportsOfGroup(&groups.Items[i], current)
	}
	shown := overview{Groups: groupsOf(groups.Items), Nodes: nodesOf(groups.Items, current), Addresses: []addressOverview{}}
	for i := range services.Items {
		shown.Addresses = append(shown.Addresses, serviceAddresses(&services.Items[i], members)...)
	}
	for i := range balancers.Items {
		shown.Addresses = append(shown.Addresses, balancerAddress(&balancers.Items[i], members))
	}
	slices.SortFunc(shown.Addresses, func(a, b addressOverview) int {
		return cmp.Or(addressOf(a).Compare(addressOf(b)), cmp.Compare(a.Object, b.Object))
	})
	return shown, nil
}

// addressOf is the zero Addr for a request without an address.
func addressOf(a addressOverview) netip.Addr {
	address, _ := netip.ParseAddr(a.Address)
	return address
}

func groupsOf(groups []v1alpha1.LoadBalancerGroup) []groupOverview {
	shown := []groupOverview{}
	for i := range groups {
		g := &groups[i]
		shown = append(shown, groupOverview{Name: g.Name, LoadBalancerGroupStatus: g.Status, Problems: failed(g.Status.Conditions)})
	}
	slices.SortFunc(shown, func(a, b groupOverview) int { return cmp.Compare(a.Name, b.Name) })
	return shown
}

// failed are the messages of conditions that don't hold.
func failed(conditions []metav1.Condition) []string {
	var problems []string
	for _, c := range conditions {
		if c.Status == metav1.ConditionFalse {
			problems = append(problems, cmp.Or(c.Message, c.Reason))
		}
	}
	return problems
}

// nodesOf are the nodes of all groups, and others with ready agents.
func nodesOf(groups []v1alpha1.LoadBalancerGroup, current map[string]nodeReport) []nodeOverview {
	shown := []nodeOverview{}
	add := func(name, group string) {
		if slices.ContainsFunc(shown, func(n nodeOverview) bool { return n.Name == name }) {
			return
		}
		r, ready := current[name]
		n := nodeOverview{Name: name, Group: group, Ready: ready}
		switch {
		case !ready:
			n.Problems = []string{"not ready, or without a ready agent"}
		case r.Node == nil:
			n.Problems = []string{"no report"}
		default:
			n.Report, n.Problems = r.Status, reported(r.Status)
		}
		shown = append(shown, n)
	}
	for i := range groups {
		for _, n := range groups[i].Status.Nodes {
			add(n.Name, groups[i].Name)
		}
	}
	for name := range current {
		add(name, "")
	}
	slices.SortFunc(shown, func(a, b nodeOverview) int { return cmp.Compare(a.Name, b.Name) })
	return shown
}

// reported are the problems of a node.
func reported(s *v1alpha1.BalancerNodeStatus) []string {
	var found []string
	add := func(holds bool, format string, args ...any) {
		if holds {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	add(s.Draining, "draining")
	add(s.Services.Failed > 0, "services failed: %d", s.Services.Failed)
	add(s.Services.Panic > 0, "services in panic: %d", s.Services.Panic)
	add(s.Backends.Unhealthy > 0, "backends unhealthy: %d", s.Backends.Unhealthy)
	add(s.Routes.Withheld > 0, "prefixes not announced: %d", s.Routes.Withheld)
	for _, p := range s.Peers {
		add(!p.Established, "peer %s: %s", p.Address, p.Message)
	}
	for _, p := range s.Problems {
		add(true, "%s: %s", p.Object, p.Message)
	}
	return found
}

// serviceAddresses returns the addresses of a Service that Fairlead serves, or is to serve.
func serviceAddresses(svc *corev1.Service, members map[string][]*report.Node) (all []addressOverview) {
	if meta.FindStatusCondition(svc.Status.Conditions, v1alpha1.ConditionServiceAllocated) == nil {
		return nil
	}
	own := slices.DeleteFunc(slices.Clone(svc.Status.Conditions), func(c metav1.Condition) bool {
		return !strings.HasPrefix(c.Type, v1alpha1.Group+"/")
	})
	one := addressOverview{Object: kindService + " " + svc.Namespace + "/" + svc.Name, Group: spec.ServedBy(svc), AnnouncedBy: []string{}, Problems: failed(own)}
	for _, address := range (service{svc}).shown() {
		a := one
		a.Address, a.AnnouncedBy = address.String(), announcers(ownerOf(kindService, svc), address, members[one.Group])
		all = append(all, a)
	}
	if all == nil {
		all = []addressOverview{one}
	}
	return all
}

func balancerAddress(b *v1alpha1.LoadBalancer, members map[string][]*report.Node) addressOverview {
	a := addressOverview{
		Address: b.Status.Address, Object: kindLoadBalancer + " " + b.Namespace + "/" + b.Name, Group: b.Status.Group,
		AnnouncedBy: []string{}, Problems: failed(b.Status.Conditions),
	}
	if s, served := servedBalancer(b); served && !s.empty {
		a.AnnouncedBy = announcers(s.owner, s.addresses[0], members[a.Group])
	}
	return a
}

// announcers names the nodes that announce an address.
func announcers(owner alloc.Owner, address netip.Addr, nodes []*report.Node) []string {
	names := []string{}
	for _, n := range nodes {
		able, _ := n.Announces()
		_, withheld, all := n.Withholds(address)
		if problem, _ := n.Problem(owner); able && all && n.Status.Routes.Announced > 0 && !withheld && problem == "" {
			names = append(names, n.Name)
		}
	}
	return names
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// pageData is the data of the template. Addresses with problems come first.
type pageData struct {
	overview
	Leader  bool
	Omitted int
}

// showPage writes the page.
func (o *deps) showPage(w http.ResponseWriter, r *http.Request) (any, error) {
	shown, err := o.overview(r.Context())
	if err != nil {
		return nil, err
	}
	data := pageData{overview: shown, Omitted: max(0, len(shown.Addresses)-maxPageAddresses)}
	slices.SortStableFunc(data.Addresses, func(a, b addressOverview) int {
		return cmp.Compare(min(1, len(b.Problems)), min(1, len(a.Problems)))
	})
	data.Addresses = data.Addresses[:len(data.Addresses)-data.Omitted]
	select {
	case <-o.synced:
		data.Leader = true
	default:
	}
	var text bytes.Buffer
	if err := page.Execute(&text, data); err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text.Bytes()) // a client that has left needs no page
	return nil, nil
}

// checkPageAddress returns an error unless it is a loopback address: there is no
// authentication.
func checkPageAddress(text string) error {
	address, err := netip.ParseAddrPort(text)
	if err == nil && !address.Addr().IsLoopback() {
		err = errors.New("want a loopback address: the page has no authentication")
	}
	if err != nil {
		return fmt.Errorf("page address %q: %w", text, err)
	}
	return nil
}

// servePage serves the page, and its data as JSON, until ctx ends.
func (o *deps) servePage(ctx context.Context) error {
	listener, err := net.Listen("tcp", o.options.PageAddress)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return httpd.ServePage(ctx, listener, o.pages(), o.log)
}

func (o *deps) pages() http.Handler {
	mux := http.NewServeMux()
	httpd.HandleStyle(mux)
	answer := httpd.JSON{Log: o.log}.Handler
	mux.HandleFunc("/{$}", answer(o.showPage))
	mux.HandleFunc("/api/v1/cluster", answer(func(_ http.ResponseWriter, r *http.Request) (any, error) { return o.overview(r.Context()) }))
	return mux
}
