// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
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
