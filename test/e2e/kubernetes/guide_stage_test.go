// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// stage is where the guide is played.
type stage struct {
	*cluster.Cluster
	// clone is the workstation's copy of the repository, and bin the first directory
	// in its PATH.
	clone, bin, kubeconfig string
}

// newStage makes a cluster and a workstation, which is the client behind the router. The
// guide's ssh leads to the nodes, and its nginx is the image that nodes would have
// pulled.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{Cluster: cluster.Start(t, cluster.Options{Nodes: 3, KubeProxy: "nftables"})}
	s.Load(t, cluster.NginxImage(t))
	for _, n := range s.Nodes() {
		if _, err := n.Run(t.Context(), "ctr", "--namespace", "k8s.io", "images", "tag", cluster.NginxName, webImage); err != nil {
			t.Fatal(err)
		}
	}
	kubernetes, err := cluster.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	s.clone, s.bin, s.kubeconfig = copyRepository(t), t.TempDir(), s.Kubeconfig(t, s.Config())
	s.link(t, "kubectl", kubernetes)
	s.link(t, "helm", helmPath(t))
	s.link(t, "kubectl-fairlead", executable)
	s.script(t, "ssh", s.ssh())
	s.script(t, "vtysh", "PATH=${PATH#*:}\nexec "+strings.Join(s.Vtysh(), " ")+" \"$@\"\n")
	s.clearRouter(t)
	return s
}

// clearRouter removes FRR's configuration: the guide configures it.
func (s *stage) clearRouter(t *testing.T) {
	t.Helper()
	args := s.Vtysh()
	for _, c := range []string{
		"configure terminal", fmt.Sprintf("no router bgp %d", cluster.RouterASN), "no bfd", "no ip prefix-list vips", "no ipv6 prefix-list vips",
	} {
		args = append(args, "-c", c)
	}
	if _, err := s.Router.Run(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// ssh is a shell script that runs a command on a node: ssh root@NODE COMMAND.
func (s *stage) ssh() string {
	var b strings.Builder
	b.WriteString("host=$1\nshift\ncase $host in\n")
	for _, n := range s.Nodes() {
		fmt.Fprintf(&b, "root@%s) enter=\"%s\" ;;\n", n.Name(), strings.Join(n.Enter(), " "))
	}
	b.WriteString("*) exit 255 ;;\nesac\nexec $enter sh -c \"$*\"\n")
	return b.String()
}

func (s *stage) link(t *testing.T, name, to string) {
	t.Helper()
	if err := os.Symlink(to, filepath.Join(s.bin, name)); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) script(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.bin, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// shell runs a script on a machine, in the workstation's clone, and returns all its
// output. When ctx ends, so do the script and its processes.
func (s *stage) shell(ctx context.Context, on *cluster.Machine, script string) (string, error) {
	args := append(on.Enter(), "bash", "-euc", script)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.clone
	cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+s.kubeconfig, "GIT_OPTIONAL_LOCKS=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copyRepository copies files that are or could be committed, so that no build
// output is left in the developer's own folder. History is the developer's.
func copyRepository(t *testing.T) string {
	t.Helper()
	from, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "git", "-C", from, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(to, name), filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(from, ".git"), filepath.Join(to, ".git")); err != nil {
		t.Fatal(err)
	}
	return to
}

// copyFile skips files that are deleted, but not yet from the index.
func copyFile(to, from string) error {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}
