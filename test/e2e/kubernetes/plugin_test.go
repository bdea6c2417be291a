// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// The plugin of kubectl shows all nodes in one table, and drains one: its agent isn't ready
// then, and is shown and undrained all the same.
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
		cluster.Await(t, patience, "kubectl fairlead "+args[0], func() error {
			out, err := plugin(args...)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return compare(shown, out)
		})
	}
	vips := i.vips(t, "web")
	await("n1 … ok\nn2 … ok\nn3 … ok\n", "status")
	await(fmt.Sprintf("default/web/80 tcp %s:80 dsr 3/3 3/3 … ok\n", vips[0]), "services")
	await(fmt.Sprintf("%s/32 default/web/80 n1, n2, n3 announced\nn1 … established\nn2 … established\nn3 … established\n", vips[0]), "routes")

	if out, err := plugin("drain", "node", "n2"); err != nil || !strings.Contains(out, "n2    node ") {
		t.Errorf("drain: %v\n%s", err, out)
	}
	i.awaitRoutes(t, vips, "n1", "n3")
	await("n1 … ok\nn2 … draining for 7s\nn3 … ok\n", "status")
	if _, err := plugin("undrain", "node", "n2"); err != nil {
		t.Error(err)
	}
	i.awaitRoutes(t, vips, i.names()...)

	var drains []struct {
		Node   string
		Answer []struct{}
	}
	out, err := plugin("drains", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &drains)
	}
	if err != nil || len(drains) != 3 || drains[1].Node != "n2" || len(drains[1].Answer) != 0 {
		t.Errorf("drains: %v\n%s", err, out)
	}
}
