// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.io/fairlead/internal/observe"
)

// Rows of docs/metrics.md are between these lines: the agent's, then those that
// only a reflector has.
const (
	tableBegins = "<!-- made by go test ./internal/observe/metric -update -->\n"
	tableEnds   = "<!-- end -->\n"
)

// The reference tells of every metric what the agent, or the reflector, tells of
// it.
func TestReference(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "metrics.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	current, rest := "", string(text)
	for _, rows := range [][]reference{references(), reflectorReferences()} {
		before, found, begins := strings.Cut(rest, tableBegins)
		_, after, ends := strings.Cut(found, tableEnds)
		if !begins || !ends {
			t.Fatalf("%s has no two pairs of lines %q and %q", path, tableBegins, tableEnds)
		}
		current += before + tableBegins + table(rows) + tableEnds
		rest = after
	}
	golden(t, path, current+rest)
}

// table has a row for each metric, in the order of the code.
func table(rows []reference) string {
	var out strings.Builder
	out.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		labels := "–"
		if len(r.labels) > 0 {
			labels = "`" + strings.Join(r.labels, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", r.name, r.kind, labels, r.help)
	}
	return out.String()
}

func references() []reference {
	var all []reference
	for _, subject := range newCollector(observe.Agent{}).subjects {
		all = append(all, subject.references()...)
	}
	return all
}

// reflectorReferences are the metrics that agents don't have.
func reflectorReferences() []reference {
	var all []reference
	for _, subject := range newReflectorCollector(observe.Reflector{}).subjects {
		for _, r := range subject.references() {
			if strings.HasPrefix(r.name, "fairlead_reflector_") {
				all = append(all, r)
			}
		}
	}
	return all
}

// wellNamed is fairlead_SUBSYSTEM_WHAT.
var wellNamed = regexp.MustCompile(`^fairlead_(service|backend|tracking|dataplane|reconcile|bgp|reflector|config|kubernetes|node|build|observe)_[a-z]+(_[a-z]+)*$`)

// Names follow STYLE: metrics of time and size in base units, counters and only
// they end in _total, and labels are few and known.
func TestNames(t *testing.T) {
	known := []string{
		"service", "vip", "backend", "exit", "interface", "mode", "operation",
		"prefix", "peer", "direction", "type",
		"version", "commit", "goversion", "kernel", "node", "dataplane",
	}
	seen := map[string]bool{}
	for _, r := range append(references(), reflectorReferences()...) {
		if !wellNamed.MatchString(r.name) || seen[r.name] {
			t.Errorf("%s: not well named, or twice there", r.name)
		}
		seen[r.name] = true
		if strings.HasSuffix(r.name, "_total") != (r.kind == kindCounter) {
			t.Errorf("%s is a %s", r.name, r.kind)
		}
		if strings.HasSuffix(r.name, "_info") != slices.Contains([]string{"fairlead_build_info", "fairlead_dataplane_attachment_info"}, r.name) {
			t.Errorf("%s: an info, or none", r.name)
		}
		if !strings.HasSuffix(r.help, ".") || strings.Contains(r.help, "|") {
			t.Errorf("%s: help %q: want sentences", r.name, r.help)
		}
		for _, label := range r.labels {
			if !slices.Contains(known, label) {
				t.Errorf("%s: unknown label %q", r.name, label)
			}
		}
	}
}

// Prometheus' own linter has nothing to say, and a registry that checks every
// sample accepts all.
func TestLint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		w.set(service("web", web, 3), service("dns", dns, 1))
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(newCollector(w.agent))
		problems, err := testutil.GatherAndLint(registry)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		shown, err := testutil.GatherAndCount(registry)
		if err != nil || shown < len(references())-2 {
			t.Errorf("%d samples of %d metrics: %v", shown, len(references()), err)
		}
	})
}
