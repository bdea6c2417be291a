// SPDX-License-Identifier: Apache-2.0

// Package deploy_test checks the alert rules and the dashboard that operators
// install with Fairlead, and that their metrics exist. test/e2e runs them in a real
// Prometheus.
package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// rules is a file of rules for Prometheus.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert       string
			Expr        string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

// unitTests is a file of tests for promtool.
type unitTests struct {
	Tests []struct {
		AlertRuleTest []struct {
			Alertname string
			ExpAlerts []any `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

// dashboard has the checked fields of a Grafana dashboard.
type dashboard struct {
	UID    string
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ RefID, Expr string }
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// alertTests are the files with tests of alerts.
var alertTests = []string{"alerts_test.yaml", "alerts_kubernetes_test.yaml", "alerts_long_test.yaml"}

// Prometheus' own tool runs the rules on made-up histories.
func TestAlerts(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, append([]string{"test", "rules"}, alertTests...)} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...) // scripts/install-deps.sh test
		cmd.Dir = "prometheus"
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, said)
		}
	}
}

// Every alert fires in a test, has a description, and uses known metrics.
func TestEveryAlertIsTested(t *testing.T) {
	var file rules
	decode(t, read(t, "prometheus", "alerts.yaml"), &file)
	fires := map[string]bool{}
	for _, name := range alertTests {
		var tests unitTests
		decode(t, read(t, "prometheus", name), &tests)
		for _, group := range tests.Tests {
			for _, check := range group.AlertRuleTest {
				if len(check.ExpAlerts) > 0 {
					fires[check.Alertname] = true
				}
			}
		}
	}
	known := knownMetrics(t)
	alerts := 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			alerts++
			if !fires[rule.Alert] {
				t.Errorf("no test lets %s fire", rule.Alert)
			}
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s has no severity, summary or description", rule.Alert)
			}
			checkMetrics(t, known, rule.Alert, rule.Expr)
		}
	}
	if alerts < 10 {
		t.Errorf("%d alerts", alerts)
	}
}

// Panels of the dashboard have unique ids, do not overlap, and query known metrics.
func TestDashboard(t *testing.T) {
	var board dashboard
	if err := json.Unmarshal(read(t, "grafana", "fairlead.json"), &board); err != nil {
		t.Fatal(err)
	}
	known, ids, taken := knownMetrics(t), map[int]bool{}, map[[2]int]string{}
	for _, panel := range board.Panels {
		if ids[panel.ID] {
			t.Errorf("%s: id %d is another panel's", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		at := panel.GridPos
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Errorf("%s lies on %q, or beyond the edge", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
		if panel.Type == "row" {
			continue
		}
		if len(panel.Targets) == 0 || panel.Description == "" {
			t.Errorf("%s asks for nothing, or doesn't say what", panel.Title)
		}
		for _, target := range panel.Targets {
			checkMetrics(t, known, panel.Title, target.Expr)
		}
	}
	if len(ids) < 20 {
		t.Errorf("%d panels", len(ids))
	}
}

var (
	documented = regexp.MustCompile("(?m)^\\| `(fairlead_\\w+)` \\| (\\w+) ")
	mentioned  = regexp.MustCompile(`\bfairlead_\w+`)
)

// knownMetrics returns the metrics of docs/reference/metrics.md, which is generated
// from the code.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, row := range documented.FindAllSubmatch(read(t, "..", "docs", "reference", "metrics.md"), -1) {
		name := string(row[1])
		known[name] = true
		if string(row[2]) == "histogram" {
			known[name+"_bucket"], known[name+"_sum"], known[name+"_count"] = true, true, true
		}
	}
	return known
}

func checkMetrics(t *testing.T, known map[string]bool, who, expression string) {
	t.Helper()
	for _, name := range mentioned.FindAllString(expression, -1) {
		if !known[name] {
			t.Errorf("%s asks for %s, which there isn't", who, name)
		}
	}
}

var exitsOfKind = regexp.MustCompile(`\b(pass|drop|forward|answer)_(?:\(([a-z_|]+)\)|([a-z_]+))`)

// The exits that alerts name are in the generated docs/reference/exits.md.
func TestExits(t *testing.T) {
	page := string(read(t, "..", "docs", "reference", "exits.md"))
	found := 0
	for _, m := range exitsOfKind.FindAllStringSubmatch(string(read(t, "prometheus", "alerts.yaml")), -1) {
		for name := range strings.SplitSeq(m[2]+m[3], "|") {
			found++
			if exit := m[1] + "_" + name; !strings.Contains(page, "| `"+exit+"` |") {
				t.Errorf("alerts.yaml names the exit %s, which doesn't exist", exit)
			}
		}
	}
	if found < 9 {
		t.Errorf("%d exits found in alerts.yaml: want 9 or more", found)
	}
}
