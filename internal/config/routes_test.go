// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/config"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

func parseRoutes(section string) (*config.Config, error) {
	return config.Parse("f", "node: {name: lb1, interfaces: [eth0]}\nroutes: "+section+"\nservices: []\n", dataplanetest.Limits())
}

func TestRoutes(t *testing.T) {
	hook := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(hook, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for section, want := range map[string]config.Routes{
		"{hook: " + hook + "}":                               {Hook: hook, Timeout: 15 * time.Second, Interval: 30 * time.Second},
		"{hook: " + hook + ", timeout: 1m30s, interval: 1h}": {Hook: hook, Timeout: 90 * time.Second, Interval: time.Hour},
	} {
		c, err := parseRoutes(section)
		if err != nil {
			t.Error(err)
			continue
		}
		if *c.Routes != want || len(c.Warnings) > 0 {
			t.Errorf("%s: %+v, warnings %v", section, c.Routes, c.Warnings)
		}
	}
}

func TestRoutesErrors(t *testing.T) {
	for section, want := range map[string]string{
		"{}":                              "f:2:9: routes.hook: missing",
		"{hook: hook}":                    `f:2:16: routes.hook: bad path "hook": want an absolute one`,
		"{hook: /bin/../bin/sh}":          `f:2:16: routes.hook: bad path "/bin/../bin/sh": want an absolute one`,
		"{hook: /bin/sh, timeout: 100ms}": "f:2:34: routes.timeout: 100ms is out of range: want 1s to 5m0s",
		"{hook: /bin/sh, interval: 0s}":   "f:2:35: routes.interval: 0s is out of range: want 1s to 1h0m0s",
		"{hook: /bin/sh}\nbgp: {asn: 65021, routerID: 10.0.2.11, peers: [{address: 10.0.2.1, asn: 65000}]}": "f:2:9: routes: not with bgp, which announces the routes to VIPs: want one of them",
	} {
		if _, err := parseRoutes(section); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", section, err, want)
		}
	}
	if _, err := config.ParseKubernetes("f", "routes: {hook: /bin/sh}\n"); err == nil || !strings.Contains(err.Error(), "routes: not here: with --kubernetes") {
		t.Errorf("with --kubernetes: %v", err)
	}
}

// A hook that isn't there, or can't be run, is a warning: the agent runs without it.
func TestRoutesWarnings(t *testing.T) {
	dir := t.TempDir()
	hook := filepath.Join(dir, "hook")
	if err := os.WriteFile(hook, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): dir + "/missing: no such file or directory",
		hook:                          hook + " is not an executable file",
		dir:                           dir + " is not an executable file",
	} {
		c, err := parseRoutes("{hook: " + path + "}")
		if err != nil || len(c.Warnings) != 1 || c.Warnings[0].Text != want {
			t.Errorf("%v, %+v, want %s", err, c, want)
		}
	}
}
