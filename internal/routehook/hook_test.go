// SPDX-License-Identifier: Apache-2.0

package routehook_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/routehook"
)

// limit is how long a condition may take.
const limit = 30 * time.Second

var (
	prefix4 = netip.MustParsePrefix("10.1.1.1/32")
	prefix6 = netip.MustParsePrefix("fd00:10:1:1::1/128")
)

func routes(prefixes ...netip.Prefix) (all []bgp.Route) {
	for _, p := range prefixes {
		all = append(all, bgp.Route{Prefix: p})
	}
	return all
}

// world is a hook whose program appends its arguments and environment to a file.
type world struct {
	*routehook.Hook
	dir string

	mu     sync.Mutex
	events []string
}

// open opens the hook of a program with this text before its last line, which succeeds.
func open(t *testing.T, text string, timeout time.Duration) *world {
	t.Helper()
	w := &world{dir: t.TempDir()}
	program := filepath.Join(w.dir, "hook")
	text = "#!/bin/sh\ncd " + w.dir + "\n" + text + "\necho \"$1 $2 $FAIRLEAD_NODE $FAIRLEAD_ADDRESS\" >>calls\n"
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	w.Hook = routehook.Open(routehook.Config{
		Program: program, Timeout: timeout, Node: "lb1", Events: w, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Address: func(p netip.Prefix) netip.Addr {
			if p.Addr().Is4() {
				return netip.MustParseAddr("10.0.2.11")
			}
			return netip.Addr{}
		},
	})
	t.Cleanup(w.Abandon)
	return w
}

func (w *world) RouteHookFailed(prefix netip.Prefix, reason string) {
	w.record("failed " + prefix.String() + ": " + reason)
}

func (w *world) RouteHookRecovered(prefix netip.Prefix) { w.record("recovered " + prefix.String()) }

func (w *world) record(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event)
}

func (w *world) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) set(t *testing.T, prefixes ...netip.Prefix) {
	t.Helper()
	if err := w.Set(routes(prefixes...)); err != nil {
		t.Fatal(err)
	}
}

// calls are the calls that succeeded.
func (w *world) calls(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}

func (w *world) settle(t *testing.T) {
	t.Helper()
	until(t, "no call is pending", func() bool { return len(w.State().Pending) == 0 })
}

// Each route is added once and removed once, however often the same routes are set.
func TestRoutesAreAddedAndRemoved(t *testing.T) {
	w := open(t, "", limit)
	for range 3 {
		w.set(t, prefix4, prefix6)
		w.settle(t)
	}
	w.set(t, prefix6)
	w.settle(t)
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	want := "add 10.1.1.1/32 lb1 10.0.2.11\nadd fd00:10:1:1::1/128 lb1 \nremove 10.1.1.1/32 lb1 10.0.2.11\nremove fd00:10:1:1::1/128 lb1 \n"
	if got := w.calls(t); got != want {
		t.Errorf("calls:\n%swant:\n%s", got, want)
	}
	if err := w.Set(nil); err == nil {
		t.Error("a closed hook takes routes")
	}
}

// An agent that is abandoned leaves its routes, also while a call is under way.
func TestAbandonLeavesRoutes(t *testing.T) {
	w := open(t, "[ $2 = 10.1.1.1/32 ] || sleep 3600", time.Hour)
	w.set(t, prefix4, prefix6)
	until(t, "the first route is added", func() bool { return w.calls(t) != "" })
	w.Abandon()
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := w.calls(t); got != "add 10.1.1.1/32 lb1 10.0.2.11\n" || len(w.recorded()) > 0 {
		t.Errorf("calls %q, events %q", got, w.recorded())
	}
}

// A call that fails is repeated, doesn't block the other prefix, and is reported with the
// last line of its output.
func TestFailedCallsAreRepeated(t *testing.T) {
	w := open(t, "[ $2 != 10.1.1.1/32 ] || [ -e mended ] || { echo first; echo no such table >&2; exit 3; }", limit)
	w.set(t, prefix4, prefix6)
	until(t, "the call has failed twice", func() bool { return w.State().Failures >= 2 })
	if got := w.calls(t); got != "add fd00:10:1:1::1/128 lb1 \n" {
		t.Errorf("calls: %q", got)
	}
	state := w.State()
	if len(state.Pending) != 1 || state.Pending[0].Reason != "add: exit status 3: no such table" || state.Pending[0].NextTry.IsZero() {
		t.Errorf("%+v", state)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "mended"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	until(t, "the recovery is recorded", func() bool { return len(w.recorded()) == 2 })
	want := []string{"failed 10.1.1.1/32: add: exit status 3: no such table", "recovered 10.1.1.1/32"}
	if got := w.recorded(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// A route whose call has failed may be there all the same: it is removed when it is no longer
// wanted, at once.
func TestFailedRouteIsRemoved(t *testing.T) {
	w := open(t, "[ $1 = remove ] || exit 1", limit)
	w.set(t, prefix4)
	until(t, "the call has failed", func() bool { return w.State().Failures > 0 })
	w.set(t)
	w.settle(t)
	if got := w.calls(t); got != "remove 10.1.1.1/32 lb1 10.0.2.11\n" {
		t.Errorf("calls: %q", got)
	}
}

// A program that hangs is killed with its children.
func TestHangingCallIsKilled(t *testing.T) {
	w := open(t, "sleep 3600 & echo $! >child; wait", 200*time.Millisecond)
	w.set(t, prefix4)
	until(t, "a call is killed", func() bool { return w.State().Failures > 0 })
	if p := w.State().Pending; len(p) != 1 || p[0].Reason != "add: killed after 200ms" {
		t.Errorf("%+v", p)
	}
	child, err := os.ReadFile(filepath.Join(w.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "its child has ended", func() bool {
		text, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/cmdline")
		return err != nil || !strings.Contains(string(text), "3600")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := w.Close(ctx); err == nil || !strings.HasPrefix(err.Error(), "route 10.1.1.1/32: ") {
		t.Errorf("the end of a hook that hangs: %v", err)
	}
}

// A process in the background that keeps the output open doesn't make a call fail.
func TestBackgroundProcess(t *testing.T) {
	w := open(t, "sleep 5 &", limit)
	w.set(t, prefix4)
	w.settle(t)
	if w.State().Failures > 0 {
		t.Errorf("%+v", w.State())
	}
}

// A program that doesn't exist is an error of each call.
func TestMissingProgram(t *testing.T) {
	w := open(t, "", limit)
	if err := os.Remove(filepath.Join(w.dir, "hook")); err != nil {
		t.Fatal(err)
	}
	w.set(t, prefix4)
	until(t, "a call has failed", func() bool { return w.State().Failures > 0 })
	if p := w.State().Pending; len(p) != 1 || !strings.HasSuffix(p[0].Reason, "hook: no such file or directory") {
		t.Errorf("%+v", p)
	}
}

// Of long output the end is kept.
func TestLongOutput(t *testing.T) {
	w := open(t, "head -c 100000 /dev/zero | tr '\\0' x; exit 1", limit)
	w.set(t, prefix4)
	until(t, "a call has failed", func() bool { return w.State().Failures > 0 })
	if reason := w.State().Pending[0].Reason; len(reason) > 300 || !strings.HasSuffix(reason, "xxx") {
		t.Errorf("%d bytes: %q", len(reason), reason)
	}
}
