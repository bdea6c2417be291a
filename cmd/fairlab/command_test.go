// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/lab/bench"
)

// execute runs a command line and returns the status, standard output and the error.
func execute(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	e := env{stdout: &out, stderr: &errs}
	status = cli.Run(t.Context(), newCommand(e), args, e.stderr)
	return status, out.String(), errs.String()
}

// An impossible lab is an error of one line, before anything is made.
func TestLabRefuses(t *testing.T) {
	for command, want := range map[string]string{
		"up":                            "accepts 1 arg(s), received 0",
		"up nonsense":                   `unknown topology "nonsense": want one of ecmp, vlan, vxlan, pods, nodes, snat, cloud, balancer-pods`,
		"up ecmp --name A/b":            `bad name "A/b"`,
		"up ecmp --balancers 0":         "0 balancers: want 1 to 80",
		"up ecmp --servers 101":         "101 servers: want 1 to 100",
		"up ecmp --mtu 100":             "topology ecmp: mtu 100 is not in 1280 to 9000",
		"up ecmp --forward nonsense":    `unknown forwarding mode "nonsense"`,
		"up ecmp --router cisco":        `topology ecmp: unknown router "cisco": want frr, bird or gobgp`,
		"up ecmp --reflector":           "topology ecmp: no router that speaks BGP is chosen",
		"up ecmp --second 4":            "4 balancers of the second VIPs: want 0 to 3",
		"up pods --router frr":          "topology pods takes no --router",
		"up snat --router gobgp":        `topology snat: router "gobgp": want frr or bird`,
		"up snat --balancers 0":         "topology snat: 0 balancers: want 1 to 80",
		"up snat --servers 101":         "topology snat: 101 servers: want 1 to 100",
		"up snat --reflector":           "topology snat takes no --reflector",
		"up balancer-pods --second 4":   "4 nodes with pods of the second VIPs: want 0 to 3",
		"up balancer-pods --router frr": "topology balancer-pods takes no --router",
		"up vlan --servers 3":           "topology vlan takes no --servers",
		"down":                          "want the name of one lab, or --all",
		"down a --all":                  "want the name of one lab, or --all",
		"down no-such-lab":              "lab no-such-lab: no such lab",
		"down ../labs":                  `bad name "../labs"`,
		"list -o xml":                   "want table, json or yaml",
		"exec no-such-lab client":       "requires at least 3 arg(s)",
		"exec no-such-lab a -- true -x": "lab no-such-lab: no such lab",
		"echo --listen nonsense":        "--listen: ",
	} {
		status, stdout, stderr := execute(t, append([]string{"lab"}, strings.Fields(command)...)...)
		usage := 2
		if strings.Contains(want, "no such lab") || strings.Contains(want, "bad name") {
			usage = 1
		}
		if status != usage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d, error %q, want %d, %q", command, status, stderr, usage, want)
		}
		if stdout != "" {
			t.Errorf("%s: prints %q", command, stdout)
		}
	}
}

// An impossible measurement is an error before anything is built.
func TestBenchRefuses(t *testing.T) {
	complete := filepath.Join(t.TempDir(), "complete.json")
	if err := os.WriteFile(complete, []byte(`{"bench": "packet"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]struct {
		status int
		text   string
	}{
		"forward --device reflector,toaster": {2, `no device is called "toaster": there are none, reflector, l2dsr`},
		"forward --cell (":                   {2, "--cell: error parsing regexp"},
		"forward --cell 9000":                {1, `no cell matches "9000"; one is called "udp, 64 bytes, 1024 flows, none"`},
		"packet --resume no-such-file":       {2, "--resume no-such-file: open"},
		"packet --resume " + complete:        {1, "resume: the report is complete"},
		"kubernetes --kubeconfig /dev/null":  {1, "a cluster is needed"},
		"all":                                {2, "accepts 1 arg(s), received 0"},
	} {
		if want.status == 1 && os.Geteuid() != 0 {
			continue // benches need root
		}
		status, stdout, stderr := execute(t, append([]string{"bench"}, strings.Fields(command)...)...)
		if status != want.status || stdout != "" || !strings.Contains(stderr, want.text) {
			t.Errorf("%s: status %d, error %q, prints %q, want %d, %q", command, status, stderr, stdout, want.status, want.text)
		}
	}
}

// TestBenchAllSkips checks that each bench that can't run is named with its reason.
func TestBenchAllSkips(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("benches need root")
	}
	var out, errs bytes.Buffer
	missing := newMeasurement("missing", "", "")
	missing.run = func(context.Context, bench.Config) (*bench.Report, error) {
		return nil, bench.Unavailable{Err: errors.New("no cluster")}
	}
	broken := newMeasurement("broken", "", "")
	broken.run = func(_ context.Context, c bench.Config) (*bench.Report, error) {
		if !c.Quick {
			t.Error("--quick is lost")
		}
		return &bench.Report{Bench: "broken", Incomplete: true, Measured: map[string]string{}}, errors.New("it broke")
	}
	dir := t.TempDir()
	cmd := newBenchAllCommand(env{stdout: &out, stderr: &errs}, []*measurement{missing, broken})
	status := cli.Run(t.Context(), cmd, []string{"--quick", dir}, &errs)
	if want := "missing: skipped: no cluster\nbroken: " + dir + "/broken.json\n"; status != 1 || out.String() != want || !strings.Contains(errs.String(), "bench broken: it broke") {
		t.Errorf("status %d, prints %q, error %q, want %q", status, out.String(), errs.String(), want)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "broken.json")); err != nil || !strings.Contains(string(text), `"incomplete":true`) {
		t.Errorf("report %s, %v", text, err)
	}
}

// All missing programs are named, with their packages, before anything is built.
func TestMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	const (
		server = "nginx (Debian package nginx)"
		tables = "nft (Debian package nftables)"
	)
	for command, want := range map[string][]string{
		"bench churn":                        {"fairlead (make build)", "fairlab (make build)", "vtysh (Debian package frr)", tables},
		"bench ecmp":                         {server, "bird (Debian package bird2)", "wrk (Debian package wrk)"},
		"bench ecmp --router gobgp":          {server, "gobgpd (make gobgpd)"},
		"bench flood":                        {"fairlab (make build)", tables},
		"bench latency":                      {server, "iptables (Debian package iptables)"},
		"bench limit":                        {server, "wrk (Debian package wrk)"},
		"bench forward":                      {"iptables (Debian package iptables)", tables},
		"bench http":                         {server, "wrk (Debian package wrk)", "haproxy (Debian package haproxy)", "tc (Debian package iproute2)", tables},
		"demo":                               {server, "wrk (Debian package wrk)"},
		"lab up ecmp --router frr --foreign": {server, "exabgp (Debian package exabgp)"},
		"lab up cloud":                       {server},
	} {
		status, stdout, stderr := execute(t, strings.Fields(command)...)
		if status != 1 || strings.Contains(stdout, "Removing") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "not installed: ") {
			t.Errorf("%s: status %d, prints %q, error %q, want one line", command, status, stdout, stderr)
		}
		for _, program := range want {
			if !strings.Contains(stderr, program) {
				t.Errorf("%s: error %q doesn't name %s", command, stderr, program)
			}
		}
	}
}

// TestOutput checks the list of labs in each format, and that a shell completes labs.
func TestOutput(t *testing.T) {
	for line, want := range map[string]string{
		"--version":                        "fairlab dev (commit ",
		"lab list -o json":                 "[",
		"__complete lab up n":              "nodes\n:4\n",
		"__complete lab exec no-such-lab ": ":4\n",
	} {
		if status, stdout, _ := execute(t, strings.Split(line, " ")...); status != 0 || !strings.HasPrefix(stdout, want) {
			t.Errorf("%q: status %d, prints %q, want %q", line, status, stdout, want)
		}
	}
}
