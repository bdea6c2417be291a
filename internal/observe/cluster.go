// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Node is the response of one node's agent. The FormatCluster functions make one table
// of the responses of all nodes, which are sorted by name.
type Node[T any] struct {
	Name string `json:"node"`
	// Error is why there is no Answer; empty if there is one.
	Error  string `json:"error,omitempty"`
	Answer T      `json:"answer,omitzero"`
}

// on is a value that a node has.
type on[V any] struct {
	node  string
	value V
}

// merge sorts the values of all nodes, and puts those together that are equal: of one
// object on several nodes, in the order of the nodes.
func merge[V any](nodes []Node[[]V], compare func(V, V) int) [][]on[V] {
	var all []on[V]
	for _, n := range nodes {
		for _, value := range n.Answer {
			all = append(all, on[V]{n.Name, value})
		}
	}
	slices.SortStableFunc(all, func(a, b on[V]) int { return compare(a.value, b.value) })
	var merged [][]on[V]
	for i, one := range all {
		if i == 0 || compare(all[i-1].value, one.value) != 0 {
			merged = append(merged, nil)
		}
		last := len(merged) - 1
		merged[last] = append(merged[last], one)
	}
	return merged
}

// where names the nodes on which something holds.
func where[V any](row []on[V], holds func(V) bool) []string {
	var nodes []string
	for _, o := range row {
		if holds(o.value) {
			nodes = append(nodes, o.node)
		}
	}
	return nodes
}

// ratio is on how many of the nodes that have an object something holds, as "2/3".
func ratio[V any](row []on[V], holds func(V) bool) string {
	return fmt.Sprintf("%d/%d", len(where(row, holds)), len(row))
}

// span is a number that nodes have, or the least and the greatest one, as "2-3".
func span[V any](row []on[V], number func(V) int) string {
	byNumber := func(a, b on[V]) int { return cmp.Compare(number(a.value), number(b.value)) }
	least, greatest := number(slices.MinFunc(row, byNumber).value), number(slices.MaxFunc(row, byNumber).value)
	if least == greatest {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d-%d", least, greatest)
}

// common is the text that most nodes have, followed by others with the nodes that have
// them: "ok; n2, n5: pending".
func common[V any](row []on[V], text func(V) string) string {
	var texts []string
	nodes := map[string][]string{}
	for _, o := range row {
		t := text(o.value)
		if nodes[t] == nil {
			texts = append(texts, t)
		}
		nodes[t] = append(nodes[t], o.node)
	}
	slices.SortStableFunc(texts, func(a, b string) int { return cmp.Compare(len(nodes[b]), len(nodes[a])) })
	for i, t := range texts[1:] {
		texts[1+i] = strings.Join(nodes[t], ", ") + ": " + t
	}
	return strings.Join(texts, "; ")
}

// unanswered is a paragraph with a line for each node without an answer.
func unanswered[T any](nodes []Node[T]) string {
	var lines strings.Builder
	for _, n := range nodes {
		if n.Error != "" {
			fmt.Fprintf(&lines, "%s: no answer: %s\n", n.Name, oneLine(n.Error))
		}
	}
	if lines.Len() == 0 {
		return ""
	}
	return "\n" + lines.String()
}

// FormatClusterStatus is a table with a row for each node, as it is at a time.
func FormatClusterStatus(nodes []Node[Status], now time.Time) string {
	return table(func(t io.Writer) {
		fmt.Fprintln(t, "NODE\tVERSION\tUP\tDATA PLANE\tSERVICES\tBACKENDS\tPEERS\tROUTES\tSTATUS")
		for _, n := range nodes {
			if n.Error != "" {
				fmt.Fprintf(t, "%s\t-\t-\t-\t-\t-\t-\t-\tno answer: %s\n", n.Name, oneLine(n.Error))
				continue
			}
			s := n.Answer
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d/%d\t%d/%d\t%d/%d\t%d/%d\t%s\n", n.Name, s.Version, age(s.Started, now), s.DataPlane.Kind,
				s.Services.Programmed, s.Services.Total, s.Backends.InUse, s.Backends.Total,
				s.BGP.Sessions, s.BGP.Peers, s.BGP.Announced, s.BGP.Announced+s.BGP.Withheld, s.condition(now))
		}
	})
}

// condition describes deviations of a node from its normal state.
func (s Status) condition(now time.Time) string {
	var found []string
	add := func(holds bool, format string, args ...any) {
		if holds {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	add(s.Draining, "draining for %s", age(s.DrainingSince, now))
	add(s.Config.Error != "", "configuration refused: %s", oneLine(s.Config.Error))
	if k := s.Followed(); k != nil {
		add(!k.Reachable, "API server not reached for %s: %s", age(k.Since, now), oneLine(k.Error))
		add(!k.Restored.IsZero(), "serves what was known %s ago", age(k.Restored, now))
		add(k.Restored.IsZero() && k.Synced.IsZero(), "objects not read yet")
		add(len(k.Problems) > 0, "%s", counted(len(k.Problems), "problem", "problems"))
	}
	for i := range s.FollowedBackends {
		f := &s.FollowedBackends[i]
		add(f.Error != "" || len(f.Problems) > 0, "backends of %s: %s", f.Service, answered(f, now))
	}
	add(s.DataPlane.Reason != "", "%s", oneLine(s.DataPlane.Reason))
	add(s.Services.Failed > 0, "%s failed", counted(s.Services.Failed, "service", "services"))
	add(s.Services.Panic > 0, "%s in panic", counted(s.Services.Panic, "service", "services"))
	add(s.Services.Drained > 0, "%s drained", counted(s.Services.Drained, "service", "services"))
	add(s.Backends.Unhealthy > 0, "%s unhealthy", counted(s.Backends.Unhealthy, "backend", "backends"))
	add(s.Backends.Drained > 0, "%s drained", counted(s.Backends.Drained, "backend", "backends"))
	return cmp.Or(strings.Join(found, "; "), ConditionOK)
}

// FormatClusterServices is a table with a row for each service. Traffic is the sum over
// all nodes.
func FormatClusterServices(nodes []Node[[]Service]) string {
	return table(func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tVIP\tFORWARD\tNODES\tBACKENDS\tPACKETS\tPACKETS/S\tBITS/S\tSTATUS")
		for _, row := range merge(nodes, func(a, b Service) int { return cmp.Or(a.VIP.Compare(b.VIP), cmp.Compare(a.Name, b.Name)) }) {
			var packets uint64
			var rate Rate
			for _, s := range row {
				packets += s.value.Packets
				rate.add(s.value.Rate)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s/%s\t%d\t%s\t%s\t%s\n", row[0].value.Name, row[0].value.VIP,
				common(row, func(s Service) string { return orDash(s.ForwardText()) }),
				ratio(row, func(s Service) bool { return s.Programmed }),
				span(row, func(s Service) int { return s.BackendsInUse }), span(row, func(s Service) int { return s.Backends }),
				packets, human(rate.PacketsPerSecond), bits(rate.BytesPerSecond),
				common(row, func(s Service) string { return s.Condition() + s.secondChoice() }))
		}
	}) + unanswered(nodes)
}

// FormatClusterBackends is a table with a row for each backend of each service. Traffic is
// the sum over all nodes.
func FormatClusterBackends(nodes []Node[[]Backend]) string {
	return table(func(t io.Writer) {
		fmt.Fprintln(t, "SERVICE\tVIP\tBACKEND\tNODES\tWEIGHT\tPACKETS\tPACKETS/S\tBITS/S\tHEALTH\tSTATUS")
		for _, row := range merge(nodes, compareBackends) {
			var packets uint64
			var rate Rate
			for _, b := range row {
				packets += b.value.Packets
				rate.add(b.value.Rate)
			}
			first := row[0].value
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", first.Service, first.VIP, first.id(),
				ratio(row, func(b Backend) bool { return b.InUse }), span(row, func(b Backend) int { return b.Weight }),
				packets, human(rate.PacketsPerSecond), bits(rate.BytesPerSecond),
				common(row, func(b Backend) string { return b.Health.String() }), common(row, Backend.condition))
		}
	}) + unanswered(nodes)
}

func compareBackends(a, b Backend) int {
	return cmp.Or(a.VIP.Compare(b.VIP), cmp.Compare(a.Service, b.Service), a.id().Compare(b.id()))
}

// FormatClusterRoutes is a table with a row for each prefix, and one with a row for each
// node's session with a peer, as they are at a time.
func FormatClusterRoutes(nodes []Node[Routes], now time.Time) string {
	announcements := make([]Node[[]Announcement], len(nodes))
	var peers strings.Builder
	for i, n := range nodes {
		announcements[i] = Node[[]Announcement]{Name: n.Name, Answer: n.Answer.Announcements}
		for _, p := range n.Answer.Peers {
			fmt.Fprintf(&peers, "%s\t%s\t%d\t%s\t%d\t%s\t%d/%d\t%s\n", n.Name, p.Address, p.ASN, since(p.Since, now), p.Flaps,
				bfdCondition(p), p.RoutesReceived, p.RoutesAnnounced, condition(p, now))
		}
	}
	text := table(func(t io.Writer) {
		fmt.Fprintln(t, "PREFIX\tSERVICES\tANNOUNCED BY\tSTATUS")
		for _, row := range merge(announcements, func(a, b Announcement) int { return a.Prefix.Compare(b.Prefix) }) {
			by := where(row, func(a Announcement) bool { return a.Announced })
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", row[0].value.Prefix, common(row, Announcement.cause), orDash(strings.Join(by, ", ")),
				common(row, Announcement.Condition))
		}
	})
	if peers.Len() > 0 {
		text += table(func(t io.Writer) {
			fmt.Fprintln(t, "\nNODE\tPEER\tAS\tSINCE\tFLAPS\tBFD\tROUTES IN/OUT\tSTATUS")
			fmt.Fprint(t, peers.String())
		})
	}
	return text + unanswered(nodes)
}

// FormatClusterFlows is a table of flows, and one of counts with a row for each node.
func FormatClusterFlows(nodes []Node[Flows]) string {
	flows := table(func(t io.Writer) {
		fmt.Fprintln(t, "NODE\tSERVICE\tVIP\tCLIENT\tBACKEND\tAGE")
		for _, n := range nodes {
			for _, f := range n.Answer.Flows {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, f.Service, f.VIP, f.Client, f.backend(), f.Age.Round(time.Second))
			}
		}
	})
	return flows + table(func(t io.Writer) {
		fmt.Fprintln(t, "\nNODE\tSHOWN\tRECORDED\tROOM\tUNSTABLE\tHITS\tMISSES\tINSERTS\tUNRECORDED\tEVICTIONS")
		for _, n := range nodes {
			if n.Error != "" {
				continue
			}
			f := n.Answer
			fmt.Fprintf(t, "%s\t%d of %d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", n.Name, len(f.Flows), f.Matching, f.Records, f.Capacity,
				f.Tracking.Unstable, f.Tracking.Hits, f.Tracking.Misses, f.Tracking.Inserts, f.Tracking.Unrecorded, f.Tracking.Evictions)
		}
	}) + unanswered(nodes)
}

// FormatClusterDrains is a table with a row for each node's drain.
func FormatClusterDrains(nodes []Node[[]Drain]) string {
	return table(func(t io.Writer) {
		fmt.Fprintln(t, "NODE\tDRAINED\tSINCE\tFLOWS\tPACKETS/S\tSTATUS")
		for _, n := range nodes {
			for _, d := range n.Answer {
				fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", n.Name, d.Target, d.Since.Format(time.RFC3339), d.Flows, human(d.PacketsPerSecond), d.condition())
			}
		}
	}) + unanswered(nodes)
}

// FormatClusterTraces is the trace of a packet, which title names, on each node. Nodes that
// do the same with the packet are together.
func FormatClusterTraces(title string, nodes []Node[[]Trace]) string {
	var texts []string
	same := map[string][]string{}
	for _, n := range nodes {
		for _, t := range n.Answer {
			text := FormatTrace(title, t)
			if same[text] == nil {
				texts = append(texts, text)
			}
			same[text] = append(same[text], n.Name)
		}
	}
	for i, text := range texts {
		texts[i] = strings.Join(same[text], ", ") + "\n" + text
	}
	return strings.Join(texts, "\n") + unanswered(nodes)
}
