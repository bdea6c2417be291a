// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

// Diagnose logs what is known of the cluster: its objects, what its programs said
// last, and the routes of the router. A test that fails does it by itself.
func (c *Cluster) Diagnose(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"get", "nodes,pods,services,endpointslices", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"},
	} {
		logOutput(t, "kubectl "+args[1], func() (string, error) {
			return c.kubectl(ctx, append(args, "--request-timeout=5s")...)
		})
	}
	for _, args := range [][]string{{"ip", "route"}, {"ip", "-6", "route"}} {
		logOutput(t, "routes of the router", func() (string, error) { return c.Router.Run(ctx, args...) })
	}
	logOutput(t, "neighbours of the router", func() (string, error) { return c.RouterShell(ctx, "show bgp summary") })
	const lines = 15
	logs, err := filepath.Glob(filepath.Join(c.dir, "*", "*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, log := range logs {
		t.Logf("%s:\n%s", filepath.Join(filepath.Base(filepath.Dir(log)), filepath.Base(log)), tail(log, lines))
	}
}

func logOutput(t testing.TB, what string, ask func() (string, error)) {
	t.Helper()
	out, err := ask()
	if err != nil {
		t.Logf("%s: %v", what, err)
	}
	t.Logf("%s:\n%s", what, out)
}
