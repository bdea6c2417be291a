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
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/routehook"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/fake"
)

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

// testHook is a hook whose program appends its arguments and environment to a file. It records the hook's events.
type testHook struct {
	*routehook.Hook
	dir    string
	events fake.Record
}

// interval is the hooks', unless a test is about it.
const interval = time.Hour

// open opens the hook of a program with this text before its last line, which succeeds.
func open(t *testing.T, text string, timeout time.Duration) *testHook {
	t.Helper()
	return openIn(t, t.TempDir(), text, timeout, interval)
}

// openIn opens the hook with the routes of an earlier one in the folder.
func openIn(t *testing.T, dir, text string, timeout, interval time.Duration) *testHook {
	t.Helper()
	h := &testHook{dir: dir}
	program := filepath.Join(h.dir, "hook")
	text = "#!/bin/sh\ncd " + h.dir + "\n" + text + "\necho \"$1 $2 $FAIRLEAD_NODE $FAIRLEAD_ADDRESS\" >>calls\n"
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	h.Hook, err = routehook.Open(routehook.Config{
		File: filepath.Join(h.dir, "routes"), Program: program, Timeout: timeout, Interval: interval, Node: "lb1", Events: h, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Address: func(p netip.Prefix) netip.Addr {
			if p.Addr().Is4() {
				return netip.MustParseAddr("10.0.2.11")
			}
			return netip.Addr{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Abandon)
	return h
}

func (h *testHook) RouteHookFailed(prefix netip.Prefix, reason string) {
	h.events.Add("failed %s: %s", prefix, reason)
}

func (h *testHook) RouteHookRecovered(prefix netip.Prefix) { h.events.Add("recovered %s", prefix) }

func (h *testHook) set(t *testing.T, prefixes ...netip.Prefix) {
	t.Helper()
	if err := h.Set(routes(prefixes...)); err != nil {
		t.Fatal(err)
	}
}

// calls are the calls that succeeded.
func (h *testHook) calls(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func (h *testHook) settle(t *testing.T) {
	t.Helper()
	await.True(t, "no call is pending", func() bool { return len(h.State().Pending) == 0 })
}

func (h *testHook) awaitFailures(t *testing.T, least uint64) {
	t.Helper()
	await.True(t, "failed calls", func() bool { return h.State().Failures >= least })
}

// Each route is added once and removed once, however often the same routes are set.
func TestAddAndRemove(t *testing.T) {
	h := open(t, "", await.Patience)
	for range 3 {
		h.set(t, prefix4, prefix6)
		h.settle(t)
	}
	h.set(t, prefix6)
	h.settle(t)
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	want := "add 10.1.1.1/32 lb1 10.0.2.11\nadd fd00:10:1:1::1/128 lb1 \nremove 10.1.1.1/32 lb1 10.0.2.11\nremove fd00:10:1:1::1/128 lb1 \n"
	if got := h.calls(t); got != want {
		t.Errorf("calls:\n%swant:\n%s", got, want)
	}
	if err := h.Set(nil); err == nil {
		t.Error("a closed hook takes routes")
	}
}

// A route that is there is added again and again, as another balancer may have removed it, until it isn't
// wanted. A call that fails then is pending.
func TestAddAgain(t *testing.T) {
	h := openIn(t, t.TempDir(), "[ ! -e broken ] || exit 1", await.Patience, time.Millisecond)
	added := func() int { return strings.Count(h.calls(t), "add "+prefix4.String()) }
	h.set(t, prefix4)
	await.True(t, "the route is added again", func() bool { return added() >= 3 })
	if pending := h.State().Pending; len(pending) > 0 {
		t.Errorf("pending are %v", pending)
	}
	broken := filepath.Join(h.dir, "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.awaitFailures(t, 1)
	if pending := h.State().Pending; len(pending) != 1 || pending[0].Reason == "" {
		t.Errorf("pending are %v", pending)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	h.settle(t)
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if calls := h.calls(t); strings.Count(calls, "remove") != 1 || !strings.HasSuffix(calls, "remove "+prefix4.String()+" lb1 10.0.2.11\n") {
		t.Errorf("calls:\n%s", calls)
	}
}

// An agent that is abandoned leaves its routes, also while a call is under way.
func TestAbandon(t *testing.T) {
	h := open(t, "[ $2 = 10.1.1.1/32 ] || sleep 3600", time.Hour)
	h.set(t, prefix4, prefix6)
	await.True(t, "the first route is added", func() bool { return h.calls(t) != "" })
	h.Abandon()
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := h.calls(t); got != "add 10.1.1.1/32 lb1 10.0.2.11\n" || len(h.events.Lines()) > 0 {
		t.Errorf("calls %q, events %q", got, h.events.Lines())
	}
}

// The routes of an agent that ended in any way are removed by the next one, unless it wants them, and not before
// it has any routes.
func TestRoutesOfEarlierAgent(t *testing.T) {
	h := open(t, "[ $2 = 10.1.1.1/32 ] || { touch second; sleep 3600; }", time.Hour) // which may have its effect
	h.set(t, prefix4, prefix6)
	await.True(t, "the second route may be there", func() bool {
		_, err := os.Stat(filepath.Join(h.dir, "second"))
		return err == nil
	})
	h.Abandon()

	h = openIn(t, h.dir, "[ -e ready ] || touch early", await.Patience, interval)
	if pending := h.State().Pending; len(pending) != 2 {
		t.Errorf("pending routes %v, want those of the earlier agent", pending)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "ready"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.set(t, prefix4)
	h.settle(t)
	h.Abandon()
	const want = "add 10.1.1.1/32 lb1 10.0.2.11\nadd 10.1.1.1/32 lb1 10.0.2.11\nremove fd00:10:1:1::1/128 lb1 \n"
	if got := h.calls(t); sorted(got) != sorted(want) {
		t.Errorf("calls:\n%swant:\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "early")); err == nil {
		t.Error("a route was changed before any were set")
	}

	h = openIn(t, h.dir, "", await.Patience, interval)
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := h.calls(t); sorted(got) != sorted(want+"remove 10.1.1.1/32 lb1 10.0.2.11\n") {
		t.Errorf("after the end of an agent without routes, calls:\n%s", got)
	}
}

// A route that can't be recorded isn't added.
func TestRouteNotRecorded(t *testing.T) {
	h := open(t, "", await.Patience)
	if err := os.Mkdir(filepath.Join(h.dir, "routes"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.set(t, prefix4)
	h.awaitFailures(t, 1)
	if got := h.calls(t); got != "" {
		t.Errorf("calls %q", got)
	}
}

// sorted sorts lines: calls are made in the order in which they are due.
func sorted(lines string) string {
	return strings.Join(slices.Sorted(strings.Lines(lines)), "")
}

// A call that fails is repeated, doesn't block the other prefix, and is reported with the
// last line of its output.
func TestRetry(t *testing.T) {
	h := open(t, "[ $2 != 10.1.1.1/32 ] || [ -e mended ] || { echo first; echo no such table >&2; exit 3; }", await.Patience)
	h.set(t, prefix4, prefix6)
	h.awaitFailures(t, 2)
	if got := h.calls(t); got != "add fd00:10:1:1::1/128 lb1 \n" {
		t.Errorf("calls: %q", got)
	}
	state := h.State()
	if len(state.Pending) != 1 || state.Pending[0].Reason != "add: exit status 3: no such table" || state.Pending[0].NextTry.IsZero() {
		t.Errorf("%+v", state)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "mended"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.settle(t)
	await.True(t, "the recovery is recorded", func() bool { return len(h.events.Lines()) == 2 })
	want := []string{"failed 10.1.1.1/32: add: exit status 3: no such table", "recovered 10.1.1.1/32"}
	if got := h.events.Lines(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// A route whose call has failed may be there all the same: it is removed when it is no longer
// wanted, at once.
func TestRemoveAfterFailedAdd(t *testing.T) {
	h := open(t, "[ $1 = remove ] || exit 1", await.Patience)
	h.set(t, prefix4)
	h.awaitFailures(t, 1)
	h.set(t)
	h.settle(t)
	if got := h.calls(t); got != "remove 10.1.1.1/32 lb1 10.0.2.11\n" {
		t.Errorf("calls: %q", got)
	}
}

// A program that hangs is killed with its children.
func TestTimeout(t *testing.T) {
	h := open(t, "sleep 3600 & echo $! >child; wait", 200*time.Millisecond)
	h.set(t, prefix4)
	h.awaitFailures(t, 1)
	if p := h.State().Pending; len(p) != 1 || p[0].Reason != "add: killed after 200ms" {
		t.Errorf("%+v", p)
	}
	child, err := os.ReadFile(filepath.Join(h.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "its child has ended", func() bool {
		text, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/cmdline")
		return err != nil || !strings.Contains(string(text), "3600")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := h.Close(ctx); err == nil || !strings.HasPrefix(err.Error(), "route 10.1.1.1/32: ") {
		t.Errorf("the end of a hook that hangs: %v", err)
	}
}

// A process in the background that keeps the output open doesn't make a call fail.
func TestBackgroundProcess(t *testing.T) {
	h := open(t, "sleep 5 &", await.Patience)
	h.set(t, prefix4)
	h.settle(t)
	if h.State().Failures > 0 {
		t.Errorf("%+v", h.State())
	}
}

// A program that doesn't exist is an error of each call.
func TestMissingProgram(t *testing.T) {
	h := open(t, "", await.Patience)
	if err := os.Remove(filepath.Join(h.dir, "hook")); err != nil {
		t.Fatal(err)
	}
	h.set(t, prefix4)
	h.awaitFailures(t, 1)
	if p := h.State().Pending; len(p) != 1 || !strings.HasSuffix(p[0].Reason, "hook: no such file or directory") {
		t.Errorf("%+v", p)
	}
}

// Of long output the end is kept.
func TestLongOutput(t *testing.T) {
	h := open(t, "head -c 100000 /dev/zero | tr '\\0' x; exit 1", await.Patience)
	h.set(t, prefix4)
	h.awaitFailures(t, 1)
	if reason := h.State().Pending[0].Reason; len(reason) > 300 || !strings.HasSuffix(reason, "xxx") {
		t.Errorf("%d bytes: %q", len(reason), reason)
	}
}
