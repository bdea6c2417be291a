// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/e2e/harness"
)

// The executable as people and their programs use it, in a lab of its own
// making: command lines in, tables, JSON and exit statuses out. The JSON is
// decoded by field names, as programs of users do.
func TestCommands(t *testing.T) {
	t.Parallel()
	harness.NeedRoot(t)
	name := harness.LabName("cli")
	t.Cleanup(func() {
		if status, _, said := harness.Fairlead(t, "lab", "down", name); status != 0 {
			t.Errorf("lab down: %s", said)
		}
	})
	harness.Show(t, "lab", "up", "ecmp", "--name", name, "--balancers", "1", "--servers", "2")

	hosts := harness.Listed(t, name)
	t.Run("lab list", func(t *testing.T) { checkListed(t, hosts) })
	t.Run("lab exec", func(t *testing.T) { checkExec(t, name) })
	t.Run("json", func(t *testing.T) { checkJSON(t, hosts["lb1"].Socket) })
	t.Run("second agent", func(t *testing.T) { checkSecondAgent(t, name, hosts["lb1"]) })
}

func checkListed(t *testing.T, hosts map[string]harness.ListedHost) {
	roles := map[string]string{
		"client": "client", "router": "router", "switch": "switch", "lb1": "balancer", "server1": "server", "server2": "server",
	}
	if len(hosts) != len(roles) {
		t.Errorf("hosts %v, want those of %v", hosts, roles)
	}
	for name, role := range roles {
		h := hosts[name]
		if h.Role != role {
			t.Errorf("%s has the role %q, want %q", name, h.Role, role)
		}
		if _, err := os.Stat(filepath.Join("/run/netns", h.Namespace)); h.Namespace == "" || err != nil {
			t.Errorf("%s: namespace %q: %v", name, h.Namespace, err)
		}
		if len(h.Interfaces) == 0 {
			t.Errorf("%s: no interfaces", name)
		}
		if (len(h.Addresses) == 0) != (role == "switch") {
			t.Errorf("%s: addresses %v", name, h.Addresses)
		}
		if (h.Socket != "") != (role == "balancer") {
			t.Errorf("%s: socket %q", name, h.Socket)
		}
	}
	if !slices.Contains(hosts["lb1"].Addresses, "10.0.2.11") || !slices.Contains(hosts["lb1"].Addresses, "fd00:2::11") {
		t.Errorf("lb1: addresses %v", hosts["lb1"].Addresses)
	}
	info, err := os.Stat(hosts["lb1"].Socket)
	if err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o600 {
		t.Errorf("control socket: %v, %v: want a socket of mode 0600", info, err)
	}
}

func checkExec(t *testing.T, name string) {
	for _, url := range []string{harness.Origin(harness.VIP4), harness.Origin(harness.VIP6)} {
		if said := harness.Show(t, "lab", "exec", name, "client", "--", "curl", "-sS", "--max-time", "5", url); !strings.HasPrefix(said, "server") {
			t.Errorf("curl of %s in the client prints %q", url, said)
		}
	}
	if status, _, _ := harness.Fairlead(t, "lab", "exec", name, "client", "--", "sh", "-c", "exit 7"); status != 7 {
		t.Errorf("the command's exit status is 7, lab exec's %d", status)
	}
}

func checkJSON(t *testing.T, socket string) {
	read := func(args ...string) string { return harness.Show(t, append(args, "-o", "json", "--socket", socket)...) }

	var status map[string]any
	harness.Decode(t, read("status"), &status)
	checkFields(t, "status", status,
		"version", "commit", "node", "pid", "started", "config", "revision", "dataplane", "services", "backends", "exits")

	var services []map[string]any
	harness.Decode(t, read("services"), &services)
	names := []string{}
	for _, s := range services {
		checkFields(t, "service", s,
			"name", "address", "port", "protocol", "forward", "affinity", "programmed", "desiredRevision", "programmedRevision",
			"attempts", "backends", "backendsInUse", "ringSize", "packets", "bytes", "packetsPerSecond", "bytesPerSecond")
		names = append(names, s["name"].(string))
	}
	if slices.Sort(names); !slices.Equal(names, []string{"echo", "echo6", "web", "web6"}) {
		t.Errorf("services %q", names)
	}

	var backends []map[string]any
	harness.Decode(t, read("backends", "web6"), &backends)
	if len(backends) != 2 {
		t.Errorf("%d backends of web6, want two", len(backends))
	}
	for _, b := range backends {
		checkFields(t, "backend", b,
			"service", "vip", "address", "port", "weight", "inUse", "nextHop", "ringEntries", "share",
			"packets", "bytes", "packetsPerSecond", "bytesPerSecond")
		if b["inUse"] != true || b["weight"] != 1.0 {
			t.Errorf("backend %v: want it in use with weight 1", b)
		}
	}
}

func checkFields(t *testing.T, what string, object map[string]any, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, ok := object[name]; !ok {
			t.Errorf("a %s has no %q: %v", what, name, object)
		}
	}
}

// A second agent on a socket is refused, and the first one doesn't suffer.
func checkSecondAgent(t *testing.T, name string, h harness.ListedHost) {
	dir := filepath.Dir(h.Socket)
	status, _, said := harness.Fairlead(t, "lab", "exec", name, h.Name, "--", "fairlead", "agent",
		"--config", filepath.Join(dir, "fairlead.yaml"), "--socket", h.Socket, "--pin-dir", filepath.Join(dir, "bpf", "second"))
	if status != 1 || !strings.Contains(said, "another agent has it") {
		t.Errorf("a second agent: status %d and %q, want 1 and that another agent has the socket", status, said)
	}
	harness.Show(t, "status", "--socket", h.Socket)
	if said := harness.Show(t, "lab", "exec", name, "client", "--", "curl", "-sS", "--max-time", "5", harness.Origin(harness.VIP4)); !strings.HasPrefix(said, "server") {
		t.Errorf("after a second agent curl prints %q", said)
	}
}
