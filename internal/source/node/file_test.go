// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// A changed file is applied as the difference from the file that was last applied, also if
// another one was refused meanwhile.
func TestFileAppliesDifference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	write := func(ports ...int) {
		t.Helper()
		var text strings.Builder
		text.WriteString("node: {name: lb1, interfaces: [eth0]}\nservices:\n")
		for i, port := range ports {
			fmt.Fprintf(&text, "  - {name: s%d, address: 10.1.1.%d, port: %d, forward: l2dsr, backends: []}\n", i, i+1, port)
		}
		if err := errors.Join(os.WriteFile(path+".next", []byte(text.String()), 0o600), os.Rename(path+".next", path)); err != nil {
			t.Fatal(err)
		}
	}
	write(80, 80, 80)
	settings, err := config.Open(path, slog.New(slog.DiscardHandler), config.Parser(dataplanetest.Limits()))
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	const first = "false [s1] [tcp 10.1.1.2:80]"
	updates := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- File{Source: settings}.Run(ctx, func(u source.Update) error {
			names := []string{}
			for i := range u.Changed {
				names = append(names, u.Changed[i].Name)
			}
			text := fmt.Sprintf("%v %v %v", u.Whole, names, u.Removed)
			if updates <- text; text == first {
				return refused
			}
			return nil
		})
	}()
	// The watch may deliver a file before Reload does: then it is refused twice, or Reload
	// applies no difference.
	expect := func(want string) {
		t.Helper()
		have := <-updates
		for have == first && want != first {
			have = <-updates
		}
		if have != want {
			t.Errorf("the update is %s, want %s", have, want)
		}
	}
	expect("true [s0 s1 s2] []")
	write(80, 81, 80)
	if err := settings.Reload(); !errors.Is(err, refused) {
		t.Errorf("reload: %v", err)
	}
	expect(first)
	write(80, 81, 82)
	if err := settings.Reload(); err != nil {
		t.Error(err)
	}
	expect("false [s1 s2] [tcp 10.1.1.2:80 tcp 10.1.1.3:80]")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A followed service in an overlay needs a tunnel end point of the node.
func TestFollowedOverlay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	for ends, refused := range map[string]bool{"": true, ", tunnelEnds: [10.0.0.1], tunnelPeers: [10.0.0.0/8]": false} {
		if err := os.WriteFile(path, []byte("node: {name: lb1, interfaces: [eth0]"+ends+"}\nservices: []\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		settings, err := config.Open(path, slog.New(slog.DiscardHandler), config.Parser(dataplanetest.Limits()))
		if err != nil {
			t.Fatal(err)
		}
		o := Options{StateDir: t.TempDir(), Limits: dataplanetest.Limits(), Log: slog.New(slog.DiscardHandler)}
		found := OpenFile(settings, KubernetesOptions{}, false, o).Follow.Check(&lb.Service{VIP: lb.VIP{Segment: lb.Segment{Type: lb.SegmentVXLAN, ID: 7}}})
		if got := slices.ContainsFunc(found, func(e lb.FieldError) bool { return e.Path == "segment" }); got != refused {
			t.Errorf("node%s: %v", ends, found)
		}
	}
}
