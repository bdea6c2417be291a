// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/host/preflight"
)

// What can't be done is said before anything is touched.
func TestCommandsRefuse(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte(strings.Replace(testConfig, "port: 80\n", "port: 0\n    prot: tcp\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte(testConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "taken.sock")
	claim, err := control.ClaimSocket(taken)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Release()

	badPort, badField := bad+":7:11: services[0].port: ", bad+":8:5: services[0].prot: "
	for line, want := range map[string][]string{
		"agent --config " + dir + "/none":                               {"fairlead: ", "no such file"},
		"agent --config " + bad + " --socket " + dir + "/s":             {badPort, badField},
		"agent --config " + bad + " --socket " + dir + "/s --remove":    {badPort, badField},
		"agent --config " + good + " --balancer-pods":                   {"--balancer-pods: only with --kubernetes"},
		"agent --kubernetes --remove-on-exit":                           {"--remove-on-exit: not with --kubernetes"},
		"agent --config " + good + " --socket " + taken:                 {"another agent has it"},
		"agent --remove --pin-dir " + dir + " --socket " + taken:        {"another agent has it"},
		"agent --log-format xml":                                        {"want text or json"},
		"controller":                                                    {"--namespace: none"},
		"controller --namespace a --kubeconfig " + dir + "/none":        {"kubeconfig: ", "no such file"},
		"node --interface lo --vip 10.1.1.1":                            {`"balancer" not set`},
		"node --interface lo --balancer 10.0.0.0/8":                     {`"vip" not set`},
		"node --interface lo --vip 10.1.1 --balancer 10.0.0.0/8":        {"--vip: ", "10.1.1"},
		"node --interface lo --vip 10.1.1.1:80/tcp --balancer 10.0.0.1": {"--balancer: ", "10.0.0.1"},
		"preflight --config " + bad:                                     {badPort, badField},
		"preflight --config " + good + " --interface lo":                {"[config interface]"},
		"status --socket " + dir + "/none":                              {"no agent at " + dir + "/none: "},
		"services --socket " + dir + "/none -o json":                    {"no agent at "},
		"backends a b":                     {"accepts at most 1 arg(s)"},
		"backends -o yaml":                 {"want table or json"},
		"reload --socket " + dir + "/none": {"no agent at "},
	} {
		status, stdout, stderr := command(strings.Fields(line)...)
		if status != 1 || stdout != "" {
			t.Errorf("%s: status %d, prints %q", line, status, stdout)
		}
		for _, text := range want {
			if !strings.Contains(stderr, text) {
				t.Errorf("%s: got %q, want %q", line, stderr, text)
			}
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("--remove took a folder while an agent runs: %v", err)
	}
}

func TestPreflightCommand(t *testing.T) {
	missing := fmt.Sprintf("no%d", os.Getpid())
	status, stdout, _ := command("preflight", "--interface", missing, "-o", "json")
	var findings []preflight.Finding
	if err := json.Unmarshal([]byte(stdout), &findings); err != nil {
		t.Fatal(err)
	}
	last := findings[len(findings)-1]
	if status != 1 || last.Interface != missing || last.Result != preflight.Fail {
		t.Errorf("status %d, last finding %+v, want a failure", status, last)
	}
	status, stdout, _ = command("preflight", "--interface", "lo")
	if failed := strings.Contains(stdout, "fail "); failed != (status == 1) || !strings.Contains(stdout, "lo: link") {
		t.Errorf("status %d\n%s", status, stdout)
	}
}
