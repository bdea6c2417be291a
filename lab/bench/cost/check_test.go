// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bufio"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/bench"
)

// Every backend is really checked, and servers end with their input.
func TestChecks(t *testing.T) {
	input, end := io.Pipe()
	reader, writer := io.Pipe()
	var serving sync.WaitGroup
	defer serving.Wait()
	defer end.Close()
	serving.Go(func() {
		if err := ServeChecks(t.Context(), input, writer); err != nil {
			t.Errorf("servers ended with %v", err)
		}
	})
	var port uint16
	if _, err := fmt.Fscan(bufio.NewReader(reader), &port); err != nil {
		t.Fatal(err)
	}
	report, err := bench.NewReport("health", "", true)
	if err != nil {
		t.Fatal(err)
	}
	p := checkPlan{warmUp: time.Second, rounds: 2, round: time.Second / 2}
	if err := measureChecks(t.Context(), CheckConfig{Backends: 40}, p, port, report); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, r := range report.Results {
		found[r.Name] += r.Runs
		if r.Median <= 0 && r.Name != "failed" {
			t.Errorf("%s of %v is %g", r.Name, r.Labels, r.Median)
		}
	}
	for _, name := range []string{"cost", "probe_cost", "rate"} {
		if found[name] != 4 {
			t.Errorf("%d rounds of %s, want 2 of each kind of check", found[name], name)
		}
	}
	if len(report.Verdicts) != 4 || report.Ratios["tcp_cores"] <= 0 || report.Ratios["http_cores"] <= 0 {
		t.Errorf("ratios %v, verdicts %v", report.Ratios, report.Verdicts)
	}
}

func TestChecksRefuse(t *testing.T) {
	for _, backends := range []int{0, maxBackends + 1} {
		if _, err := Checks(t.Context(), CheckConfig{Backends: backends}); err == nil {
			t.Errorf("%d backends are accepted", backends)
		}
	}
	if _, err := Checks(t.Context(), CheckConfig{Backends: 1, Servers: []string{"true"}}); err == nil {
		t.Error("servers that say no port are accepted")
	}
}
