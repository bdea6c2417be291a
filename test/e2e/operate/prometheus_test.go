// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// monitorAddress is where Prometheus listens, in a namespace of its own.
const monitorAddress = "127.0.0.1:9090"

// monitor is a real Prometheus that runs on a balancer.
type monitor struct {
	lab  *lab
	host string
	web  http.Client
}

// watch starts a Prometheus on a host, with the alerts of deploy/ and the agents
// at the given addresses. It is stopped with the lab.
func (l *lab) watch(t *testing.T, host string, targets []string) *monitor {
	t.Helper()
	list, err := json.Marshal(targets) // which is YAML too
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"prometheus.yaml": fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: fairlead
    static_configs: [{targets: %s}]
`, list),
		"alerts.yaml": impatient(string(alerts)),
	} {
		if err := os.WriteFile(filepath.Join(l.State().Host(host).Directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err = l.Start(t.Context(), host, netlab.Process{Name: "prometheus", Args: []string{
		"prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=prometheus",
		"--web.listen-address=" + monitorAddress, "--log.level=warn",
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := &monitor{lab: l, host: host}
	m.web.Transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return l.Dial(ctx, host, network, address)
	}}
	t.Cleanup(m.web.CloseIdleConnections)
	up := func() bool { return m.sum(t, `up{job="fairlead"}`) == float64(len(targets)) }
	if !await.Holds(up) {
		log, err := os.ReadFile(filepath.Join(l.State().Host(host).Directory, "prometheus.log"))
		t.Fatalf("prometheus doesn't see %d agents: %v\n%s", len(targets), err, log)
	}
	return m
}

var patient = regexp.MustCompile(`(?m)^        for: .*$`)

// impatient shortens how long an alert's condition has to hold.
func impatient(rules string) string { return patient.ReplaceAllString(rules, "        for: 1s") }

// query asks Prometheus for the present values of an expression.
func (m *monitor) query(ctx context.Context, expression string) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	form := url.Values{"query": {expression}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+monitorAddress+"/api/v1/query?"+form.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := m.web.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, errors.New(answer.Error)
	}
	values := make([]float64, len(answer.Data.Result))
	for i, r := range answer.Data.Result {
		if values[i], err = strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// sum adds up a query's results; -1 is an empty result, or no answer.
func (m *monitor) sum(t *testing.T, expression string) float64 {
	values, err := m.query(t.Context(), expression)
	if err != nil || len(values) == 0 {
		return -1
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}

// awaitAlert waits until an alert with the labels fires so many times, each of another balancer.
func (m *monitor) awaitAlert(t *testing.T, name string, times int, labels ...string) {
	t.Helper()
	matchers := append([]string{fmt.Sprintf("alertname=%q", name), `alertstate="firing"`}, labels...)
	expression := "ALERTS{" + strings.Join(matchers, ", ") + "}"
	expression = "count(" + expression + ") or vector(0)"
	if !await.Holds(func() bool { return m.sum(t, expression) == float64(times) }) {
		t.Errorf("%s: %.0f, want %d", expression, m.sum(t, expression), times)
	}
}

// scraped waits until all agents have been scraped after now, and have answered.
func (m *monitor) scraped(t *testing.T) {
	t.Helper()
	now := float64(time.Now().UnixMilli()) / 1000
	harness.Until(t, "all agents are scraped", func() bool {
		return m.sum(t, fmt.Sprintf(`count(up) - count(timestamp(up) > %f and up == 1)`, now)) == 0
	})
}
