// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The binary found has the version that go.mod requires, and all components.
func TestKubernetes(t *testing.T) {
	path, err := Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	r, err := currentRelease()
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl",
	} {
		args := []string{component, "--version"}
		if component == "kubectl" {
			args = []string{component, "version", "--client"}
		}
		out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), r.version) {
			t.Errorf("%s: %v, %q, want version %s", component, err, out, r.version)
		}
	}
}

func TestMissingKubernetes(t *testing.T) {
	t.Setenv(kubernetesVariable, filepath.Join(t.TempDir(), "none"))
	if _, err := Kubernetes(); err == nil || !strings.Contains(err.Error(), "make kubernetes") {
		t.Errorf("got %v, want what to do", err)
	}
}

// Every change of the sources is another release, and another place in the cache.
func TestRelease(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\nrequire (\n\tk8s.io/kubernetes v1.2.3\n)\n")
	write("go.sum", "")
	write("main.go", "package main")
	one, err := releaseOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	write("main.go", "package main // other")
	two, err := releaseOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if one.version != "v1.2.3" || two.version != one.version || one.sum == two.sum {
		t.Errorf("got %+v and then %+v, want different sums of v1.2.3", one, two)
	}
	if flags := one.linkFlags(); !strings.Contains(flags, "gitMajor=1 ") || !strings.Contains(flags, "gitMinor=2 ") {
		t.Errorf("flags of the linker: %s", flags)
	}
	write("go.mod", "module m\n")
	if r, err := releaseOf(dir); err == nil {
		t.Errorf("got %+v without Kubernetes", r)
	}
}
