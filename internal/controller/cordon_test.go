// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
)

// letterAddress returns the address that a letter stands for.
func letterAddress(letter rune) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 51, 100, byte(letter)})
}

// readCluster returns nodes, their agents and their reports. A node is written as a letter, "~" if it is
// cordoned, "!" if its agent is not ready, and the number of routes that it announces; after a
// number "-" says that it has no session, "<" that all its routes are leaving. Reports are of this step,
// or with "=" of the one before.
// Letters after "/" are withheld addresses, and "…" is one that isn't listed.
func readCluster(t *testing.T, step int, text string) (nodes []corev1.Node, pods []corev1.Pod, reports []v1alpha1.BalancerNode) {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		name := word[:1]
		flags, withheld, _ := strings.Cut(word[1:], "/")
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: strings.Contains(flags, "~")}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		nodes = append(nodes, node)
		pod := corev1.Pod{Spec: corev1.PodSpec{NodeName: name}}
		if !strings.Contains(flags, "!") {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		pods = append(pods, pod)
		digits := strings.Trim(flags, "~!-=<")
		if digits == "" {
			continue
		}
		report := v1alpha1.BalancerNode{ObjectMeta: node.ObjectMeta}
		report.ResourceVersion = fmt.Sprint(step)
		if strings.Contains(flags, "=") {
			report.ResourceVersion = fmt.Sprint(step - 1)
		}
		if _, err := fmt.Sscan(digits, &report.Status.Routes.Announced); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(flags, "<") {
			report.Status.Routes.Leaving = report.Status.Routes.Announced
		}
		for _, letter := range withheld {
			if report.Status.Routes.Withheld++; letter != '…' {
				report.Status.Withheld = append(report.Status.Withheld, v1alpha1.WithheldRoute{Prefix: letterAddress(letter).String() + "/32"})
			}
		}
		report.Status.Peers = []v1alpha1.NodePeer{{Address: "192.0.2.1"}}
		if !strings.Contains(flags, "-") {
			report.Status.Routes.Sessions = 1
		}
		reports = append(reports, report)
	}
	return nodes, pods, reports
}

// A cordoned node leaves its group when other nodes announce the same routes, and comes back when
// no other node serves.
func TestCordonedNodes(t *testing.T) {
	type step struct {
		after   time.Duration
		cluster string
		want    string
		recheck time.Duration
	}
	for name, test := range map[string]struct {
		groups string // names and sizes
		steps  []step
	}{
		"a spare": {"g2", []step{
			{0, "a7 b7 c0", "g a,b", 0},
			{0, "a~7 b7 c0", "g a,b,c", takeoverGrace},
			{10 * time.Second, "a~7 b7 c6", "g a,b,c", takeoverGrace - 10*time.Second},
			{0, "a~7 b7 c7", "g b,c", 0},
			{time.Hour, "a~0 b7 c7", "g b,c", 0},
			{0, "a0 b7 c7", "g b,c", 0},
		}},
		"a spare in a group of one": {"g1", []step{
			{0, "a7 b", "g a", 0},
			{0, "a~7 b", "g a,b", 0},
			{time.Hour, "a~7 b6", "g a,b", 0},
			{0, "a~7 b7-", "g a,b", 0},
			{0, "a~7 b7", "g b", 0},
		}},
		"a spare that was in the group": {"g2", []step{
			{0, "a7 b7 c7", "g a,b", 0},
			{0, "a~7 b7 c7=", "g a,b,c", formerRecheck},
			{0, "a~7 b7 c0", "g a,b,c", takeoverGrace},
			{0, "a~7 b7 c7", "g b,c", 0},
		}},
		"a spare that is one again at once": {"g2", []step{
			{0, "a7 b7 c7", "g a,b", 0},
			{0, "a~7 b7 c7=", "g a,b,c", formerRecheck},
			{0, "a~7 b7 c7", "g b,c", 0},
			{0, "a~0 b7 c7", "g b,c", 0},
		}},
		"a spare whose routes are leaving since it was in the group": {"g2", []step{
			{0, "a7 b7 c7<", "g a,b", 0},
			{0, "a~7 b7 c7<=", "g a,b,c", takeoverGrace},
			{0, "a~7 b7 c7<", "g a,b,c", takeoverGrace},
			{0, "a~7 b7 c7", "g b,c", 0},
		}},
		"a spare whose agent isn't ready when it joins": {"g1", []step{
			{0, "a7 c7", "g a", 0},
			{0, "a~7 c!7", "g a,c", 0},
			{0, "a~7 c7=", "g a,c", formerRecheck},
			{0, "a~7 c7", "g c", 0},
		}},
		"a node that has just joined": {"g2", []step{
			{0, "a7 b7 c7 d0", "g a,b", 0},
			{0, "a7 b~!7 c7 d0", "g a,c", 0},
			{0, "a7 b~!7 c~7= d0", "g a,c,d", takeoverGrace},
			{0, "a7 b~!7 c~7 d7", "g a,d", 0},
		}},
		"a spare in a group of one that is one again at once": {"g1", []step{
			{0, "a7 b7", "g a", 0},
			{0, "a~7 b7=", "g a,b", formerRecheck},
			{formerRecheck, "a~7 b7", "g b", 0},
		}},
		"no spare": {"g3", []step{
			{0, "a7 b7 c7", "g a,b,c", 0},
			{0, "a7 b~7 c7", "g a,c", 0},
			{0, "a7 b7 c7", "g a,b,c", 0},
		}},
		"a node that doesn't announce all is waited for": {"g3", []step{
			{0, "a7 b7 c5", "g a,b,c", 0},
			{0, "a~7 b7 c5", "g a,b,c", takeoverGrace},
			{takeoverGrace - 1, "a~7 b7 c5", "g a,b,c", 1},
			{1, "a~7 b7 c5", "g b,c", 0},
		}},
		"a node without ready agent isn't": {"g3", []step{
			{0, "a7 b7 c7", "g a,b,c", 0},
			{0, "a~7 b7 c!7", "g b,c", 0},
		}},
		"no other node": {"g2", []step{
			{0, "a7", "g a", 0},
			{0, "a~7", "g a", 0},
			{time.Hour, "a~7 b!", "g a,b", 0},
			{0, "a~7 b", "g a,b", 0},
			{0, "a~7 b7", "g b", 0},
		}},
		"all of them": {"g2", []step{
			{0, "a7 b7", "g a,b", 0},
			{0, "a~7 b7", "g b", 0},
			{0, "a~0 b~7", "g b", 0},
		}},
		"the others are lost": {"g2", []step{
			{0, "a7 b7", "g a,b", 0},
			{0, "a~7 b7", "g b", 0},
			{0, "a~0 b!7", "g b", 0},
			{time.Minute, "a~0 b!7", "g a,b", 0},
			{0, "a~7 b0", "g a,b", 0},
			{0, "a~7 b7", "g b", 0},
		}},
		"the node is lost": {"g2", []step{
			{0, "a7 b7 c0", "g a,b", 0},
			{0, "a~!7 b7 c0", "g b,c", 0},
		}},
		"not into another group": {"g1 h1", []step{
			{0, "a7 b7", "g a; h b", 0},
			{0, "a~7 b7", "g a; h b", 0},
			{0, "a~7 b7 c", "g a,c; h b", 0},
			{0, "a~7 b~7 c7", "g c; h b", 0},
		}},
		"the only route of a Service": {"g3", []step{
			{0, "a1/B b1/A c0/AB", "g a,b,c", 0},
			{0, "a~1/B b1/A c0/AB", "g a,b,c", 0},
			{time.Hour, "a~1/B b1/A c0/AB", "g a,b,c", 0},
			{0, "a~0/AB b2 c0/AB", "g b,c", 0},
		}},
		"the only route of two cordoned nodes": {"g3", []step{
			{0, "a1/B b1/B c1/A", "g a,b,c", 0},
			{0, "a~1/B b~1/B c1/A", "g a,b,c", 0},
			{time.Hour, "a~1/B b~1/B c1/A", "g a,b,c", 0},
			{0, "a~0/AB b~0/AB c2", "g c", 0},
		}},
		"the only route, and a spare that starts": {"g2", []step{
			{0, "a1/B b1/A c0", "g a,b", 0},
			{0, "a~1/B b1/A c0", "g a,b,c", 0},
			{time.Hour, "a~1/B b1/A c1/A", "g a,b,c", 0},
			{0, "a~1/B b1/A c2", "g b,c", 0},
		}},
		"a route that all have, and too many withheld ones to be listed": {"g2", []step{
			{0, "a1/B… b1/A…", "g a,b", 0},
			{0, "a~1/B… b1/A…", "g b", 0},
		}},
		"an address of another group that the other node relays": {"g2", []step{
			{0, "a2 b2/C", "g a,b", 0},
			{0, "a~2 b2/C", "g b", 0},
		}},
		"nothing is announced": {"g2", []step{
			{0, "a b c", "g a,b", 0},
			{0, "a~ b c", "g b,c", 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &groupReconciler{nodes: newNodeTracker(time.Minute), assigned: map[string][]string{}}
			now := time.Unix(1_000_000, 0)
			for i, s := range test.steps {
				now = now.Add(s.after)
				var groups []*group
				for word := range strings.FieldsSeq(test.groups) {
					g := &group{LoadBalancerGroup: &v1alpha1.LoadBalancerGroup{ObjectMeta: metav1.ObjectMeta{Name: word[:1], UID: types.UID(word[:1])}}}
					g.size = int(word[1] - '0')
					g.readSelectors()
					g.addresses = []netip.Addr{letterAddress('A'), letterAddress('B')}
					groups = append(groups, g)
				}
				nodes, pods, reports := readCluster(t, i, s.cluster)
				candidates, _ := r.nodes.candidates(nodes, pods, now)
				addRoutes(candidates, reports)
				recheck := r.assignNodes(groups, candidates, now)
				var got []string
				for _, g := range groups {
					var names []string
					for _, n := range g.nodes {
						names = append(names, n.Name)
					}
					got = append(got, g.Name+" "+strings.Join(names, ","))
				}
				if got := strings.Join(got, "; "); got != s.want || recheck != s.recheck {
					t.Errorf("step %d, %s: %s, again in %s; want %s, %s", i+1, s.cluster, got, recheck, s.want, s.recheck)
				}
			}
		})
	}
}

// A report is read again for a group if other prefixes are withheld, also if as many are.
func TestWithheldChanged(t *testing.T) {
	_, _, before := readCluster(t, 0, "a1/B")
	_, _, now := readCluster(t, 1, "a1/A")
	if !membersChanged(&before[0], &now[0]) || membersChanged(&now[0], &now[0]) {
		t.Error("another withheld prefix makes no difference")
	}
}

// The condition of a group says which of its nodes are cordoned, and why there are too few.
func TestCordonedCondition(t *testing.T) {
	g := &group{LoadBalancerGroup: &v1alpha1.LoadBalancerGroup{}, size: 2}
	g.readSelectors()
	nodes, _, _ := readCluster(t, 0, "a~ b~ c")
	g.countNodes(nodes)
	g.nodes, g.ready, g.leaving = []v1alpha1.GroupNode{{}, {}, {}}, 3, []string{"a", "b"}
	want := "3 nodes of 2, 3 ready; cordoned, and serving until other nodes announce as many routes: a, b"
	if c := groupCondition(g); c.Reason != reasonAllNodesReady || c.Message != want {
		t.Errorf("%s: %q, want %q", c.Reason, c.Message, want)
	}
	g.nodes, g.ready, g.leaving = []v1alpha1.GroupNode{{}}, 1, nil
	want = "1 nodes of 2, 1 ready; nodeSelector matches 3, 2 cordoned"
	if c := groupCondition(g); c.Reason != reasonSomeNodesReady || c.Message != want {
		t.Errorf("%s: %q, want %q", c.Reason, c.Message, want)
	}
}
