// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/test/await"
)

// watched starts a command that watches and returns its output, and a function that
// ends it.
func watched(t *testing.T, args ...string) (written *syncBuffer, end func()) {
	t.Helper()
	written = &syncBuffer{}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- cli.Run(ctx, newRootCommand(env{stdout: written, stderr: written}), args, written) }()
	return written, func() {
		interrupt()
		select {
		case status := <-ended:
			if status != 0 {
				t.Errorf("%q: status %d: %s", args, status, written)
			}
		case <-time.After(await.Patience):
			t.Fatalf("%q doesn't end", args)
		}
	}
}

// TestWatch checks that the drains are shown once and again when they have changed, in each
// format, until an interrupt.
func TestWatch(t *testing.T) {
	a := startAgent(t)
	t.Setenv("FAIRLEAD_SOCKET", a.socket)
	lines, endLines := watched(t, "drains", "-w", "-o", "json")
	until(t, "the first line", func() bool { return lines.String() == "[]\n" })
	a.show("drain", "service", "web")
	until(t, "the next line", func() bool { return strings.Count(lines.String(), "\n") == 2 })
	_, line, _ := strings.Cut(lines.String(), "\n")
	var drains []observe.Drain
	if err := json.Unmarshal([]byte(line), &drains); err != nil || len(drains) != 1 || drains[0].Service != "web" {
		t.Errorf("%v: %q", err, line)
	}
	endLines()

	documents, endDocuments := watched(t, "drains", "--watch", "-o", "yaml")
	table, endTable := watched(t, "drains", "--watch")
	until(t, "the first ones", func() bool {
		return strings.Contains(documents.String(), "service: web") && strings.Contains(table.String(), "web")
	})
	a.show("undrain", "service", "web")
	until(t, "the next ones", func() bool {
		return strings.HasSuffix(documents.String(), "\n---\n[]\n") && strings.Contains(table.String(), "\n\nDRAINED")
	})
	for document := range strings.SplitSeq(documents.String(), "---\n") {
		if err := yaml.UnmarshalStrict([]byte(document), &drains); err != nil {
			t.Errorf("%v: %q", err, document)
		}
	}
	endDocuments()
	endTable()
}
