// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/test/golden"
)

// The reference has every metric with its help text.
func TestMetricReference(t *testing.T) {
	golden.Parts(t, "../../docs/reference/metrics.md", "<!-- made by go test ./internal/controller -update -->\n", metricTable())
}

func metricTable() string {
	var out strings.Builder
	out.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, s := range samples() {
		labels := "–"
		if len(s.labels) > 0 {
			labels = "`" + strings.Join(s.labels, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | gauge | %s | %s |\n", s.name, labels, s.help)
	}
	return out.String()
}

// cached is a client whose cache has a pool and a group.
type cached struct{ client.Client }

func (cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.AddressPoolList:
		l.Items = []v1alpha1.AddressPool{{ObjectMeta: metav1.ObjectMeta{Name: "main"}}}
	case *v1alpha1.LoadBalancerGroupList:
		l.Items = []v1alpha1.LoadBalancerGroup{{
			ObjectMeta: metav1.ObjectMeta{Name: "g"},
			Status:     v1alpha1.LoadBalancerGroupStatus{ReadyNodes: 2, Services: 5, Addresses: 4},
		}}
	}
	return nil
}

// Only the leader exports metrics of decisions; metric names follow the conventions.
func TestMetrics(t *testing.T) {
	o := newDeps(Options{})
	o.Client = cached{}
	c := collector{o}
	o.allocations.SetPools([]addressPool{pool(t, "main", "192.0.2.0/30", "", "")})
	pending := request("c", 0)
	pending.Families = []alloc.Family{alloc.IPv6}
	o.allocations.Request(request("b", 0))
	o.allocations.Request(pending)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 1 {
		t.Errorf("%d samples before anything was decided, error %v", n, err)
	}
	close(o.synced)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	want := `
# HELP fairlead_controller_waiting Services and LoadBalancers whose request for addresses is pending, and Services that wait because of another controller.
# TYPE fairlead_controller_waiting gauge
fairlead_controller_waiting 1
# HELP fairlead_pool_addresses_assigned Assigned addresses of the pool, including those assigned from an overlapping pool.
# TYPE fairlead_pool_addresses_assigned gauge
fairlead_pool_addresses_assigned{family="IPv4",pool="main"} 1
fairlead_pool_addresses_assigned{family="IPv6",pool="main"} 0
# HELP fairlead_controller_group_nodes_ready Nodes of the LoadBalancerGroup that are ready and have a ready agent.
# TYPE fairlead_controller_group_nodes_ready gauge
fairlead_controller_group_nodes_ready{group="g"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"fairlead_controller_waiting", "fairlead_pool_addresses_assigned", "fairlead_controller_group_nodes_ready"); err != nil {
		t.Error(err)
	}
	wellNamed := regexp.MustCompile(`^fairlead_(controller|pool)_[a-z]+(_[a-z]+)*$`)
	for _, s := range samples() {
		if !wellNamed.MatchString(s.name) || !strings.HasSuffix(s.help, ".") {
			t.Errorf("%s: %q", s.name, s.help)
		}
	}
}
