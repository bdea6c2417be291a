// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/e2e/harness"
)

// The demonstration ends well, shows how requests were spread, and leaves no lab
// behind.
func TestDemo(t *testing.T) {
	harness.NeedRoot(t)
	cmd := exec.CommandContext(t.Context(), "fairlab", "demo")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	said := stdout.String()
	for _, want := range []string{
		"server1", "server4", "lb1", "lb2", "lb3", "total", // the table
		"Answers that passed a balancer: 0 packets",
		"10.1.1.1/32        via lb1, lb2, lb3", "fd00:10:1:1::1/128 via lb1, lb2, lb3", // the router's
		"2 of 2 routes announced", "established", // the balancer's
		"lb2 is out of the router's routes", "lb2 is back",
		"lb3 withdrew its routes", "lb3 is in the routes again",
		"server3 is out of the rings of all balancers", "server3 is in again",
		"fairlab lab up ecmp",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the demo doesn't say %q:\n%s", want, said)
		}
	}
	const flawless = "0 connects, 0 reads, 0 writes, 0 time-outs, 0 not OK"
	if n := strings.Count(said, flawless); n != 5 {
		t.Errorf("%d runs of wrk say %q, want all but the one in which a server is killed:\n%s", n, flawless, said)
	}
	if n := strings.Count(said, "connections broken: 0 of 64"); n != 2 {
		t.Errorf("%d times no connection is broken, want 2:\n%s", n, said)
	}
	if hosts := harness.Listed(t, fmt.Sprintf("demo-%d", cmd.Process.Pid)); len(hosts) > 0 {
		t.Errorf("the demo's lab is left: %v", hosts)
	}
}
