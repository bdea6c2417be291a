// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/controller/ledger"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

// The reference tells of every metric what the controller tells of it.
func TestMetricReference(t *testing.T) {
	const begins, ends = "<!-- made by go test ./internal/controller -update -->\n", "<!-- end -->\n"
	path := filepath.Join("..", "..", "docs", "metrics.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, found, _ := strings.Cut(string(text), begins)
	_, after, complete := strings.Cut(found, ends)
	if !complete {
		t.Fatalf("%s has no lines %q and %q", path, begins, ends)
	}
	want := before + begins + metricTable() + ends + after
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not current: go test ./internal/controller -run TestMetricReference -update", path)
	}
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

// Only the leader shows what was decided; names are as the style wants them.
func TestMetrics(t *testing.T) {
	o := newOffice(Options{})
	c := collector{o, &poolReconciler{office: o}, newGroupReconciler(o)}
	c.pools.names = []string{"main"}
	r, err := alloc.ParseRange("192.0.2.0/30")
	if err != nil {
		t.Fatal(err)
	}
	everything, err := selectorOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	o.ledger.SetPools([]ledger.Pool{{Pool: alloc.Pool{Name: "main", Ranges: []alloc.Range{r}, Automatic: true}, Namespaces: everything, Objects: everything}})
	o.ledger.Claim(ledger.Wish{Owner: alloc.Owner{Kind: kindService, Namespace: "a", Name: "b"}, Families: []alloc.Family{alloc.IPv4}})
	o.ledger.Claim(ledger.Wish{Owner: alloc.Owner{Kind: kindService, Namespace: "a", Name: "c"}, Families: []alloc.Family{alloc.IPv6}})
	c.groups.known.groups = []groupCount{{"g", 3, 2, count{5, 4}}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 1 {
		t.Errorf("%d samples before anything was decided, error %v", n, err)
	}
	close(o.began)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	want := `
# HELP fairlead_controller_waiting Services and LoadBalancers that lack an address that they wish for.
# TYPE fairlead_controller_waiting gauge
fairlead_controller_waiting 1
# HELP fairlead_pool_addresses_assigned Addresses of the pool that have an owner, also if another pool gave them that overlaps.
# TYPE fairlead_pool_addresses_assigned gauge
fairlead_pool_addresses_assigned{family="IPv4",pool="main"} 1
fairlead_pool_addresses_assigned{family="IPv6",pool="main"} 0
# HELP fairlead_controller_group_nodes_ready Nodes of the LoadBalancerGroup that are ready, and their agents.
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
