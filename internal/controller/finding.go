// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/report"
	"fairlead.io/fairlead/internal/spec"
)

// Reasons of conditions of Services and LoadBalancers that sum up reports of nodes.
const (
	reasonProgrammed      = "Programmed"
	reasonNotProgrammed   = "NotProgrammed"
	reasonBackendsHealthy = "BackendsHealthy"
	reasonBackendsDead    = "BackendsDead"
	reasonAnnounced       = "Announced"
	reasonPartlyAnnounced = "PartlyAnnounced"
	reasonNotAnnounced    = "NotAnnounced"
)

// programGrace is how long nodes may take to report a changed object before its condition says
// that they haven't programmed it: an agent writes once in five seconds at most.
const programGrace = 10 * time.Second

// findings are the conditions and Events of Services and LoadBalancers that follow from node
// reports.
type findings struct {
	mu     sync.Mutex
	owners map[alloc.Owner]finding
}

// finding has the conditions and Events of one object.
type finding struct {
	// conditions have the types of a LoadBalancer's. Those that aren't known are missing: they stay
	// as they are.
	conditions []metav1.Condition
	// reported is the generation that the reports cover.
	reported int64
}

// of returns the conditions of an owner.
func (f *findings) of(owner alloc.Owner) []metav1.Condition {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.owners[owner].conditions)
}

// await reports whether nodes are expected to report a generation of an owner.
func (f *findings) await(owner alloc.Owner, generation int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, known := f.owners[owner]
	return known && found.reported < generation
}

// replace sets the findings of all owners, and returns those with others than before, or none.
func (f *findings) replace(now map[alloc.Owner]finding) (changed []alloc.Owner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = changedOwners(f.owners, now, func(a, b finding) bool {
		return a.reported == b.reported && slices.Equal(a.conditions, b.conditions)
	})
	f.owners = now
	return changed
}

// serviceConditions are the types of a Service's conditions that follow from reports of nodes, by
// the LoadBalancer's types.
var serviceConditions = map[string]string{
	v1alpha1.ConditionProgrammed:      v1alpha1.ConditionServiceProgrammed,
	v1alpha1.ConditionBackendsHealthy: v1alpha1.ConditionServiceBackendsHealthy,
	v1alpha1.ConditionAnnounced:       v1alpha1.ConditionServiceAnnounced,
}

// setFindings sets the conditions of an owner that follow from reports of nodes, or removes them if
// no group serves it, and returns those that it has set.
func (o *deps) setFindings(owner alloc.Owner, conditions *[]metav1.Condition, served bool) []metav1.Condition {
	service := owner.Kind == kindService
	if !served {
		removeFindings(conditions, service)
		return nil
	}
	found := o.findings.of(owner)
	for i := range found {
		if service {
			found[i].Type = serviceConditions[found[i].Type]
		}
		set(conditions, found[i])
	}
	return found
}

// removeFindings removes the conditions of a Service or LoadBalancer that follow from reports of nodes.
func removeFindings(conditions *[]metav1.Condition, service bool) {
	for kind, ofService := range serviceConditions {
		if service {
			kind = ofService
		}
		meta.RemoveStatusCondition(conditions, kind)
	}
}

// served is a Service or LoadBalancer that a group serves.
type served struct {
	owner      alloc.Owner
	uid        types.UID
	group      string
	addresses  []netip.Addr
	version    string
	generation int64
	// observed is the generation of its conditions that follow from reports; none if it has none.
	observed int64
	// content is all that agents read of the object.
	content any
	// empty says that it has nothing to announce, tagged that its address is in a segment.
	empty, tagged bool
}

// none stands for no generation: a Service's generation is 0.
const none = -1

// observedGeneration returns the generation of a condition; none without it.
func observedGeneration(conditions []metav1.Condition, kind string) int64 {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.ObservedGeneration
	}
	return none
}

// servedService returns a Service that has addresses and a group.
func servedService(svc *corev1.Service) (served, bool) {
	s := served{
		owner: ownerOf(kindService, svc), uid: svc.UID, group: spec.ServedBy(svc), addresses: service{svc}.shown(), version: svc.ResourceVersion,
		observed: observedGeneration(svc.Status.Conditions, v1alpha1.ConditionServiceProgrammed),
		content:  []any{svc.Spec, svc.Annotations, svc.Labels, svc.Status.LoadBalancer, spec.ServedBy(svc)},
	}
	return s, s.group != "" && len(s.addresses) > 0
}

// servedBalancer returns a LoadBalancer that has an address and a group.
func servedBalancer(b *v1alpha1.LoadBalancer) (served, bool) {
	s := served{
		owner: ownerOf(kindLoadBalancer, b), uid: b.UID, group: b.Status.Group, addresses: balancer{b}.shown(), version: b.ResourceVersion,
		generation: b.Generation, observed: observedGeneration(b.Status.Conditions, v1alpha1.ConditionProgrammed),
		content: []any{b.Generation, b.Labels, b.Status.Address, b.Status.Group},
		tagged:  b.Spec.Segment != nil,
	}
	s.empty = !slices.ContainsFunc(b.Spec.Listeners, func(l v1alpha1.Listener) bool { return l.Enabled == nil || *l.Enabled })
	return s, s.group != "" && len(s.addresses) > 0
}

// revision is the version of an object at which the content that agents read last changed.
type revision struct {
	// uid is the object's: another one of the same name has no revision yet.
	uid types.UID
	// digest is the content's digest at the newest version.
	newest string
	digest uint64
	// since is when this process saw the change.
	version string
	since   time.Time
	// reported is the newest generation that nodes have reported, or are late to report; none if
	// there is none yet.
	reported int64
}

// follow returns the revision of a newer version of the object, or the same one.
func (r revision) follow(s *served, now time.Time) revision {
	if r.uid != s.uid {
		r = revision{uid: s.uid}
	}
	if r.newest == s.version {
		return r
	}
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(s.content); err != nil {
		panic(err) // these are types of the API
	}
	if digest := h.Sum64(); r.newest == "" || digest != r.digest {
		if r.newest == "" {
			r.reported = s.observed
		}
		r.digest, r.version, r.since = digest, s.version, now
	}
	r.newest = s.version
	return r
}

// programmed says whether nodes have programmed an object; there is no condition if that isn't known,
// and wait is how long nodes may still take.
func programmed(s *served, r revision, nodes []*report.Node, now time.Time) (c *metav1.Condition, wait time.Duration) {
	var problems, late []string
	complete := true
	for _, n := range nodes {
		message, all := n.Problem(s.owner)
		says := !n.Status.Reported.IsZero() // agents of former versions don't report programmed services
		complete = complete && all && says
		if message != "" {
			problems = append(problems, n.Name+": "+message)
		} else if says && !n.Covers(s.owner, r.version) {
			late = append(late, n.Name+": not yet")
		}
	}
	if wait = programGrace - now.Sub(r.since); len(problems) == 0 && len(late) > 0 && wait > 0 {
		return nil, wait
	}
	problems = append(problems, late...)
	switch {
	case len(problems) > 0:
		c = new(condition(v1alpha1.ConditionProgrammed, false, reasonNotProgrammed, named(problems)))
	case complete:
		c = new(condition(v1alpha1.ConditionProgrammed, true, reasonProgrammed, "on all nodes of LoadBalancerGroup "+s.group))
	}
	return c, 0
}

// healthy says whether nodes have found backends of an object dead; nil if that isn't known.
func healthy(s *served, nodes []*report.Node) *metav1.Condition {
	dead, all := report.Dead(s.owner, nodes)
	var texts []string
	for _, d := range dead {
		on := ""
		if len(d.Nodes) < len(nodes) {
			on = " on " + strings.Join(d.Nodes[:min(len(d.Nodes), maxNamed)], ", ")
		}
		texts = append(texts, d.Backend+on+": "+cmp.Or(d.Message, "dead"))
	}
	switch {
	case len(texts) > 0:
		return new(condition(v1alpha1.ConditionBackendsHealthy, false, reasonBackendsDead, named(texts)))
	case all:
		return new(condition(v1alpha1.ConditionBackendsHealthy, true, reasonBackendsHealthy, "none was found dead"))
	}
	return nil
}

// announced says whether nodes announce the addresses of an object; nil if that isn't known, or if no
// node announces any.
func announced(s *served, nodes []*report.Node) *metav1.Condition {
	able, complete := 0, true
	var withheld, unable []string
	for _, n := range nodes {
		if !n.HasRoutes() {
			continue
		}
		if announces, why := n.Announces(); !announces {
			unable = append(unable, n.Name+": "+why)
			continue
		}
		able++
		for _, a := range s.addresses {
			message, is, all := n.Withholds(a)
			complete = complete && all
			if is {
				withheld = append(withheld, n.Name+": "+message)
				break
			}
		}
	}
	kind := v1alpha1.ConditionAnnounced
	switch {
	case s.empty:
		return new(condition(kind, false, reasonNotAnnounced, "no listener"))
	case able == 0 && len(unable) == 0:
		return nil
	case len(withheld) == able:
		return new(condition(kind, false, reasonNotAnnounced, named(append(withheld, unable...))))
	case len(withheld) > 0:
		return new(condition(kind, true, reasonPartlyAnnounced, "not by "+named(withheld)))
	case complete:
		return new(condition(kind, true, reasonAnnounced, "by the nodes of LoadBalancerGroup "+s.group))
	}
	return nil
}

// announcing says which nodes of a group announce addresses; nil if none has any to announce.
func announcing(g *v1alpha1.LoadBalancerGroup, nodes []*report.Node) *metav1.Condition {
	var by, others []string
	for _, n := range nodes {
		announces, why := n.Announces()
		switch {
		case !n.HasRoutes():
			continue
		case announces:
			by = append(by, n.Name)
		default:
			others = append(others, n.Name+": "+why)
		}
	}
	if len(by) == 0 && len(others) == 0 {
		return nil
	}
	c := condition(v1alpha1.ConditionAnnounced, len(by) > 0, reasonAnnounced, "by "+strings.Join(by, ", "))
	switch {
	case len(by) == 0:
		c.Reason, c.Message = reasonNotAnnounced, named(others)
	case len(others) > 0:
		c.Reason, c.Message = reasonPartlyAnnounced, c.Message+"; not by "+named(others)
	}
	c.ObservedGeneration = g.Generation
	return &c
}

// named joins texts, of which a condition has maxNamed.
func named(texts []string) string {
	text := strings.Join(texts[:min(len(texts), maxNamed)], "; ")
	if more := len(texts) - maxNamed; more > 0 {
		text += fmt.Sprintf("; %d more", more)
	}
	return text
}
