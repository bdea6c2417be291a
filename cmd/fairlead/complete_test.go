// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestCompletion checks the names that a shell gets from a running agent, and none without
// one.
func TestCompletion(t *testing.T) {
	a := startAgent(t)
	t.Setenv("FAIRLEAD_SOCKET", a.socket)
	a.show("drain", "backend", "web", "10.0.0.21")
	for line, want := range map[string]string{
		"backends ":                "web",
		"backends web ":            "",
		"drain service ":           "web",
		"drain backend ":           "web",
		"drain backend web ":       "10.0.0.21:80 10.0.0.22:80",
		"drain backend nonsense ":  "",
		"undrain service ":         "",
		"undrain backend ":         "web",
		"undrain backend web ":     "10.0.0.21:80",
		"flows --service ":         "web",
		"status -o ":               "table json yaml",
		"agent --log-level ":       "debug info warn error",
		"drain ":                   "backend\tOne backend of a service node\tThis node service\tA whole service",
		"preflight --interface l":  "lo",
		"tune --apply ":            "xdp kernel server",
		"status --socket /none ":   "",
		"backends --socket /none ": "",
	} {
		if got := completions(t, line); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// completions returns a shell's completions of a line, without the directive at the
// end.
func completions(t *testing.T, line string) string {
	t.Helper()
	words := strings.Split(line, " ")
	status, stdout, _ := command(append([]string{"__complete"}, words...)...)
	if status != 0 {
		t.Fatalf("%q: status %d", line, status)
	}
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	return strings.Join(lines[:len(lines)-1], " ")
}
