// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// hookScript changes the routes of a router's namespace, as others change a cloud's route
// table. It fails until the file with the namespace's name is there.
const hookScript = `#!/bin/sh
here=$(dirname "$0")
router=$(cat "$here/router") || exit 1
echo "$1 $2 $FAIRLEAD_NODE" >>"$here/calls"
case $2 in *:*) family=-6 ;; *) family=-4 ;; esac
case $1 in
add) exec ip -n "$router" route replace "$2" via "$FAIRLEAD_ADDRESS" ;;
remove)
  own=$(ip -n "$router" $family route show exact "$2" via "$FAIRLEAD_ADDRESS") || exit
  [ -z "$own" ] || exec ip -n "$router" route delete "$2" via "$FAIRLEAD_ADDRESS"
  ;;
esac
`

// vipPrefixes are the prefixes that the labs' agents have routes for.
var vipPrefixes = []netip.Prefix{netip.MustParsePrefix(harness.VIP4 + "/32"), netip.MustParsePrefix(harness.VIP6 + "/128")}

// One balancer without BGP in a cloud, started on another node by its orchestrator when its
// node is lost: each agent has the route table lead to its node. An agent that was cut off
// and is then stopped leaves its successor's routes (dissertation, chapter 8).
func TestRouteHook(t *testing.T) {
	topology, err := netlab.Cloud(netlab.CloudOptions{Forward: lb.NAT, Balancers: 2, Servers: 2, Checked: []netlab.Role{netlab.Server}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, dir, "hook", hookScript)
	topology.Probes = nil
	router := topology.Host("router")
	router.Routes = slices.DeleteFunc(router.Routes, func(r netlab.Route) bool { return slices.Contains(vipPrefixes, r.Destination) })
	for _, name := range []string{"lb1", "lb2"} {
		topology.Host(name).Agent.Hook = filepath.Join(dir, "hook")
	}
	topology.Host("lb1").Agent.HookInterval = time.Second
	topology.Host("lb2").Agent.HookInterval = time.Hour
	second := topology.Host("lb2").Processes[0]
	topology.Host("lb2").Processes = nil

	l := bringUp(t, "hook", topology)
	lb1, lb2 := l.State().Host("lb1"), l.State().Host("lb2")
	writeFile(t, dir, "router", l.State().Host("router").Namespace)
	l.awaitHookRoutes(t, "lb1")
	l.checkHookServes(t)

	l.power(t, "lb1", false)
	l.KillAgent(t, lb1, "agent")
	if err := l.Start(t.Context(), "lb2", second); err != nil {
		t.Fatal(err)
	}
	l.awaitHookRoutes(t, "lb2")
	l.checkHookServes(t)
	l.power(t, "lb1", true)
	l.checkHookServes(t)

	l.power(t, "lb2", false)
	l.StartAgent(t, lb1)
	l.awaitHookRoutes(t, "lb1")
	harness.Until(t, "lb1 has no pending routes", func() bool { return l.Routes(t, "lb1").Hook.Pending == 0 })
	l.power(t, "lb2", true)
	loaded := harness.Repeat(t, time.Millisecond, l.get(t, harness.VIP4), l.get(t, harness.VIP6))
	if err := l.Stop(t.Context(), lb2.Name, "agent"); err != nil {
		t.Error(err)
	}
	loaded()
	l.awaitHookRoutes(t, "lb1")

	// A second balancer that is rolled back: it takes the route, and removes it.
	calls := func(call string) int { return strings.Count(readCalls(t, dir), call) }
	before := calls("add lb2")
	l.StartAgent(t, lb2)
	harness.Until(t, "lb2 takes the routes", func() bool { return calls("add lb2") == before+2 })
	if err := l.Stop(t.Context(), lb2.Name, "agent"); err != nil {
		t.Error(err)
	}
	l.awaitHookRoutes(t, "lb1")
	l.checkHookServes(t)

	if err := l.Stop(t.Context(), lb1.Name, "agent"); err != nil {
		t.Error(err)
	}
	l.awaitHookRoutes(t)
	text := readCalls(t, dir)
	for call, want := range map[string]int{"add lb2": 4, "remove lb2": 4, "remove lb1": 2} {
		if got := strings.Count(text, call); got != want {
			t.Errorf("%d calls %q, want %d", got, call, want)
		}
	}
	if !strings.HasSuffix(text, strings.Repeat("remove lb1\n", 2)) {
		t.Errorf("calls:\n%s", text)
	}
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.WriteFile(path+".next", []byte(text), 0o700), os.Rename(path+".next", path)); err != nil {
		t.Fatal(err)
	}
}

// awaitHookRoutes waits until the routes to the VIPs lead to these balancers.
func (l *lab) awaitHookRoutes(t *testing.T, via ...string) {
	t.Helper()
	for _, prefix := range vipPrefixes {
		l.awaitRouteOf(t, prefix.Addr().String(), via...)
	}
}

// get returns a function that sends a request from the client.
func (l *lab) get(t *testing.T, vip string) func() error {
	return func() error {
		_, err := l.Get(t.Context(), "client", harness.Origin(vip))
		return err
	}
}

// checkHookServes checks that both servers answer at both VIPs.
func (l *lab) checkHookServes(t *testing.T) {
	t.Helper()
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		harness.Until(t, vip+" is served", func() bool { return l.get(t, vip)() == nil })
		if answers := l.Gets(t, "client", harness.Origin(vip), 40); len(answers) != 2 {
			t.Errorf("%s: answers by %v, want both servers", vip, answers)
		}
	}
}

// power cuts a host off, or ends that.
func (l *lab) power(t *testing.T, host string, on bool) {
	t.Helper()
	if on {
		l.Run(t, "router", "nft", "delete table inet power")
		return
	}
	l.Run(t, "router", "nft", "table inet power { chain forward { type filter hook forward priority filter; iifname "+
		host+" drop; oifname "+host+" drop; }; }")
}

// readCalls returns the calls of the hook, without prefixes.
func readCalls(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	var calls strings.Builder
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		calls.WriteString(words[0] + " " + words[2] + "\n")
	}
	return calls.String()
}

// Agents whose hook doesn't exist, fails or hangs serve all the same, with the reason in
// status, routes, events and metrics, and end when they are stopped.
func TestRouteHookFails(t *testing.T) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.NAT, Balancers: 3, Servers: 2})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, dir, "fails", "#!/bin/sh\necho no such table >&2\nexit 3\n")
	writeFile(t, dir, "hangs", "#!/bin/sh\nsleep 3600\n")
	reasons := map[string]string{
		"lb1": "add: fork/exec " + dir + "/missing: no such file or directory",
		"lb2": "add: exit status 3: no such table",
		"lb3": "add: killed after 1s",
	}
	for name, hook := range map[string]string{"lb1": "missing", "lb2": "fails", "lb3": "hangs"} {
		agent := topology.Host(name).Agent
		agent.Hook, agent.HookTimeout = filepath.Join(dir, hook), time.Second
	}
	l := bringUp(t, "hookfails", topology)
	for name, reason := range reasons {
		h := l.State().Host(name)
		harness.Until(t, name+" has the reason", func() bool { return harness.Status(t, h).BGP.Hook.Reason == reason })
		for _, a := range l.Routes(t, name).Announcements {
			if !a.Announced || a.Hook != "fails: "+reason && a.Hook != "pending" {
				t.Errorf("%s: %+v", name, a)
			}
		}
		if text := l.Show(t, name, "routes"); !strings.Contains(text, "hook fails: "+reason) {
			t.Errorf("%s: %s", name, text)
		}
		metrics := l.Run(t, name, "curl", "-sS", "--fail", "http://127.0.0.1:"+harness.PagePort+"/metrics")
		if !strings.Contains(metrics, "\nfairlead_route_hook_up 0\n") || !strings.Contains(metrics, "\nfairlead_route_hook_pending 2\n") {
			t.Errorf("%s: the metrics hide that the hook fails", name)
		}
		var events []observe.Event
		harness.Decode(t, l.Run(t, name, "curl", "-sS", "--fail", "http://127.0.0.1:"+harness.PagePort+"/api/v1/events"), &events)
		if !slices.ContainsFunc(events, func(e observe.Event) bool { return e.Reason == "hook fails: "+reason }) {
			t.Errorf("%s: events %+v", name, events)
		}
	}
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		l.Gets(t, "client", harness.Origin(vip), 60)
	}
	for name := range reasons {
		began := time.Now()
		if err := l.Stop(t.Context(), name, "agent"); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(filepath.Join(l.State().Host(name).Directory, "agent.log"))
		if err != nil {
			t.Fatal(err)
		}
		if text := string(text); !strings.Contains(text, "routes not removed") || !strings.Contains(text, "agent stopped") {
			t.Errorf("%s: after %s: the agent didn't end well:\n%s", name, time.Since(began), text)
		}
	}
}
