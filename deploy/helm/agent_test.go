// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/config"
)

// Agents accept the chart's file, and it has the values.
func TestAgentConfiguration(t *testing.T) {
	for name, values := range map[string]string{"defaults": "{}", "everything": full} {
		text := rendered(t, values)["ConfigMap/fairlead-agent"].Data["fairlead.yaml"]
		conf, err := config.ParseKubernetes(name, text)
		if err != nil {
			t.Errorf("%v in\n%s", err, text)
			continue
		}
		if name != "everything" {
			continue
		}
		if !slices.Equal(conf.Node.Interfaces, []string{"eth0", "eth1"}) || conf.Node.DrainTimeout != time.Minute ||
			conf.Dataplane.Kind != config.KindIPVS || !conf.Dataplane.FilterPods || conf.Node.NAT.Ports != (config.Ports{First: 1024, Last: 29999}) ||
			conf.Observe.Listen.String() != "[::]:9571" || conf.BGP == nil || conf.BGP.ASN != 65021 {
			t.Errorf("%+v, speaker %+v, of\n%s", conf, conf.BGP, text)
		}
	}
}

// The hash seed is in no ConfigMap. Without one in the values the controller makes it, and may
// write no other Secret.
func TestHashSeed(t *testing.T) {
	for values, want := range map[string]string{
		"{}": "", "agent: {dataplane: {hashSeed: 0}}": "MA==", "agent: {dataplane: {hashSeed: 9007199254740991}}": "OTAwNzE5OTI1NDc0MDk5MQ==",
	} {
		all := rendered(t, values)
		if text := all["ConfigMap/fairlead-agent"].Data["fairlead.yaml"]; strings.Contains(text, "hashSeed") {
			t.Errorf("%s: the ConfigMap has the seed:\n%s", values, text)
		}
		if got := all["Secret/"+seedSecret].Data["seed"]; got != want {
			t.Errorf("%s: the Secret has %q, want %q", values, got, want)
		}
		writer := slices.Contains(containerOf(t, all["Deployment/fairlead-controller"]).args, "--hash-seed-secret="+seedSecret)
		right := allowed(t, all)[access{"fairlead-controller", namespace, "", "secrets", "patch", seedSecret}]
		if random := want == ""; writer != random || right != random {
			t.Errorf("%s: the controller writes: %t, may: %t, want %t", values, writer, right, random)
		}
	}
}

// Agents may read the Secrets that the values name, and no others.
func TestSecrets(t *testing.T) {
	for values, want := range map[string][]string{
		"{}":                            {"get " + seedSecret},
		"{bgp: {passwordSecrets: [a]}}": {"get " + seedSecret, "list a", "watch a"},
		"{bgp: {asn: 1, passwordSecrets: [a], peers: [{name: p1, address: 192.0.2.1, asn: 2}, " +
			"{name: p2, address: 192.0.2.2, asn: 2, passwordSecretRef: {name: b}}, {name: p3, address: 192.0.2.3, asn: 2, passwordSecretRef: {name: a}}]}}": {
			"get " + seedSecret, "list a", "list b", "watch a", "watch b",
		},
	} {
		var got []string
		for a := range allowed(t, rendered(t, values)) {
			if a.account == "fairlead-agent" && a.resource == "secrets" {
				got = append(got, a.verb+" "+a.name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: agents may %q, want %q", values, got, want)
		}
	}
}

// container has the checked fields of a container.
type container struct {
	args         []string
	capabilities []any
	grace        any
}

func containerOf(t *testing.T, o object) container {
	t.Helper()
	pod := dig(t, o.Spec, "template", "spec").(map[string]any)
	one := pod["containers"].([]any)[0].(map[string]any)
	c := container{grace: pod["terminationGracePeriodSeconds"]}
	for _, arg := range one["args"].([]any) {
		c.args = append(c.args, arg.(string))
	}
	c.capabilities, _ = dig(t, one, "securityContext", "capabilities").(map[string]any)["add"].([]any)
	return c
}

// dig returns a value of nested mappings.
func dig(t *testing.T, in map[string]any, path ...string) any {
	t.Helper()
	var found any = in
	for _, key := range path {
		inner, ok := found.(map[string]any)
		if !ok {
			t.Fatalf("no %v", path)
		}
		found = inner[key]
	}
	return found
}

// Commands and flags of containers exist.
func TestArguments(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "fairlead")
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "../../cmd/fairlead").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	all := rendered(t, full)
	for _, name := range []string{"DaemonSet/fairlead-agent", "Deployment/fairlead-controller", "Deployment/fairlead-apiserver"} {
		args := slices.Concat(containerOf(t, all[name]).args, []string{"--help"})
		if said, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
			t.Errorf("%s: fairlead %q: %v\n%s", name, args, err, said)
		}
	}
}

// Agents have three capabilities and those of the values, controllers and API servers none. A pod has
// more time to end than its agent has to drain.
func TestRights(t *testing.T) {
	all := rendered(t, full)
	agent := containerOf(t, all["DaemonSet/fairlead-agent"])
	if want := []any{"NET_ADMIN", "BPF", "PERFMON", "NET_RAW"}; !slices.Equal(agent.capabilities, want) {
		t.Errorf("agent: capabilities %v, want %v", agent.capabilities, want)
	}
	if agent.grace != uint64(76) {
		t.Errorf("agent: %v seconds to end (%[1]T), want 15 more than the 60 of the drain, and one for routers", agent.grace)
	}
	slow := containerOf(t, rendered(t, "bgp: {asn: 65021, shutdownDelay: 1m30.2s200ms}")["DaemonSet/fairlead-agent"])
	if slow.grace != uint64(30+15+91) {
		t.Errorf("agent: %v seconds to end, want 91 for routers", slow.grace)
	}
	for _, name := range []string{"controller", "apiserver"} {
		if c := containerOf(t, all["Deployment/fairlead-"+name]).capabilities; len(c) > 0 {
			t.Errorf("%s: capabilities %v", name, c)
		}
	}
}

// Of the node's files an agent sees its own only: it can't replace what others have pinned in
// the BPF file system. With IPVS it writes the node's sysctls, and modprobe reads modules.
func TestFilesOfTheNode(t *testing.T) {
	own := []string{"/run/fairlead", "/sys/fs/bpf/fairlead"}
	for values, more := range map[string][]string{
		"{}":                               nil,
		"agent: {dataplane: {kind: auto}}": {"/proc/sys/net"},
		"agent: {modprobe: {image: kmod}}": {"/lib/modules"},
		full:                               {"/proc/sys/net", "/lib/modules"},
	} {
		pod := dig(t, rendered(t, values)["DaemonSet/fairlead-agent"].Spec, "template", "spec").(map[string]any)
		var paths []string
		for _, volume := range pod["volumes"].([]any) {
			if host, is := volume.(map[string]any)["hostPath"].(map[string]any); is {
				paths = append(paths, host["path"].(string))
			}
		}
		if want := slices.Concat(own, more); !slices.Equal(paths, want) {
			t.Errorf("%s: mounted are %q, want %q", values, paths, want)
		}
	}
}

// Modules are loaded by a container of its own, which ends before the agent starts and alone has
// the capability for it.
func TestModprobe(t *testing.T) {
	if pod := dig(t, rendered(t, "{}")["DaemonSet/fairlead-agent"].Spec, "template", "spec").(map[string]any); pod["initContainers"] != nil {
		t.Errorf("init containers %v by default", pod["initContainers"])
	}
	pod := dig(t, rendered(t, full)["DaemonSet/fairlead-agent"].Spec, "template", "spec").(map[string]any)
	first := pod["initContainers"].([]any)[0].(map[string]any)
	if command := first["command"].([]any); !slices.Equal(command, []any{"modprobe", "-a", "ip_vs", "ip_vs_mh"}) {
		t.Errorf("command %q", command)
	}
	if added := dig(t, first, "securityContext", "capabilities", "add").([]any); !slices.Equal(added, []any{"SYS_MODULE"}) {
		t.Errorf("capabilities %q", added)
	}
}
