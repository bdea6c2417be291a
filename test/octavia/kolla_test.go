// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Kolla's templates with the override of the guide install the provider next to Octavia, in the base image of
// octavia-api and octavia-driver-agent.
func TestKolla(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/openstack.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```jinja template-override.j2$\n(.*?)^```$").FindSubmatch(guide)
	if block == nil {
		t.Fatal("the guide has no override")
	}
	dir := t.TempDir()
	override := filepath.Join(dir, "template-override.j2")
	if err := os.WriteFile(override, block[1], 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), filepath.Join(venv(t, "kolla"), "kolla-build"), "--template-only",
		"--work-dir", dir, "--base", "debian", "--template-override", override, "^octavia")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("kolla-build: %v\n%s", err, out)
	}
	for image, want := range map[string]string{
		"octavia-base":         ` /octavia https://\S+/fairlead_octavia_provider-\S+\.whl `,
		"octavia-api":          `^FROM kolla/octavia-base:`,
		"octavia-driver-agent": `^FROM kolla/octavia-base:`,
	} {
		text, err := os.ReadFile(filepath.Join(dir, "docker", "octavia", image, "Dockerfile"))
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s: no %q in\n%s", image, want, strings.TrimSpace(string(text)))
		}
	}
}
