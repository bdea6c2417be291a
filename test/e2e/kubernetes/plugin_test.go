// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/cluster"
	"fairlead.io/fairlead/test/guide"
)

// The plugin of kubectl shows each node, and drains one: its agent isn't ready then, and is shown
// and undrained all the same.
func testPlugin(t *testing.T, i *installation) {
	kubernetes, err := cluster.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for name, to := range map[string]string{"kubectl": kubernetes, "kubectl-fairlead": executable} {
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	plugin := func(args ...string) (string, error) {
		line := []string{"env", "PATH=" + bin + ":" + os.Getenv("PATH"), "KUBECONFIG=" + i.kubeconfig, "kubectl", "fairlead"}
		return i.Client.Run(t.Context(), append(line, args...)...)
	}
	await := func(shown string, args ...string) {
		t.Helper()
		cluster.Await(t, "kubectl fairlead "+args[0], func() error {
			out, err := plugin(args...)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return guide.Compare(shown, out)
		})
	}
	vips := i.vips(t, "web")
	web := fmt.Sprintf("default/web/80 tcp %s:80 dsr 3/3 … ok\n", vips[0])
	await("n1:\n"+web+"n2:\n"+web+"n3:\n"+web, "services") // TestGuide has more

	if out, err := plugin("--node", "n2", "drain", "node"); err != nil || !strings.HasPrefix(out, "node: ") {
		t.Errorf("drain: %v\n%s", err, out)
	}
	i.awaitRoutes(t, vips, "n1", "n3")
	await("n1:\nn2:\ndraining for 7s\nn3:\n", "status")
	if _, err := plugin("--node", "n2", "undrain", "node"); err != nil {
		t.Error(err)
	}
	i.awaitRoutes(t, vips, i.names()...)
	if out, err := plugin("--node", "n2", "drains", "-o", "json"); err != nil || strings.Contains(out, "since") {
		t.Errorf("drains: %v\n%s", err, out)
	}
}

// The controller's page of the cluster is reached by a forwarded port, and not by the network.
func testClusterPage(t *testing.T, i *installation) {
	kubernetes, err := cluster.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	forward := exec.CommandContext(t.Context(), kubernetes, "kubectl", "--kubeconfig", i.kubeconfig, "--namespace", namespace,
		"port-forward", "deployment/fairlead-controller", "9577")
	if err := i.Client.Start(forward); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = forward.Process.Kill()
		_ = forward.Wait() // it was killed
	}()
	get := func(address string) (string, error) {
		return i.Client.Run(t.Context(), "curl", "--silent", "--show-error", "--fail", "--max-time", "5", "http://"+address+"/api/v1/cluster")
	}
	cluster.Await(t, "the page of the cluster", func() error {
		out, err := get("127.0.0.1:9577")
		if err != nil {
			return err
		}
		var shown struct {
			Addresses []struct {
				Object      string
				AnnouncedBy []string
			}
		}
		if err := json.Unmarshal([]byte(out), &shown); err != nil {
			return err
		}
		for _, a := range shown.Addresses {
			if a.Object == "Service default/web" && slices.Equal(a.AnnouncedBy, i.names()) {
				return nil
			}
		}
		return errors.New(out)
	})
	for address := range strings.FieldsSeq(i.Kubectl(t, "get", "pods", "--namespace", namespace,
		"--selector", "app.kubernetes.io/component=controller", "--output", "jsonpath={.items[*].status.podIP}")) {
		if out, err := i.Nodes()[0].Run(t.Context(), "curl", "--silent", "--max-time", "5", "http://"+net.JoinHostPort(address, "9577")+"/"); err == nil {
			t.Errorf("%s: the page is reached by the network:\n%s", address, out)
		}
	}
}
