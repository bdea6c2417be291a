// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// With kind auto, in a kernel without IPVS, a service that only IPVS can serve has an error that
// names the module, and others are served by XDP.
func TestKindAuto(t *testing.T) {
	t.Parallel()
	topology := small(lb.NAT)(t)
	auto := strings.Replace(topology.Host("lb1").Agent.YAML(), "kind: xdp\n", "kind: auto\n", 1)
	text := strings.Replace(auto, "name: web6\n", "name: web6\n    scheduler: lc\n", 1)
	if !strings.Contains(auto, "kind: auto") || text == auto {
		t.Fatalf("no kind and no service web6 in:\n%s", auto)
	}
	topology.Host("lb1").Files = map[string]string{netlab.AgentFile: auto}
	l := bringUp(t, "kind", topology)
	h := l.State().Host("lb1")
	l.Write(t, h, text)
	var second observe.Service
	harness.Until(t, "web6 has been tried", func() bool {
		second = harness.Services(t, h)["web6"]
		return harness.Status(t, h).Config.Digest == harness.Digest(text) && (second.Error != "" || second.DataPlane == "ipvs")
	})
	if second.Error == "" {
		t.Skipf("this kernel has IPVS: web6 is on it (%s)", second.DataPlaneReason)
	}
	for _, why := range []string{"data plane ipvs: kernel module ip_vs is missing", "scheduler: scheduler lc can't be served by data plane xdp"} {
		if !strings.Contains(second.Error, why) {
			t.Errorf("web6: %s, want %s", second.Error, why)
		}
	}
	if out := harness.Show(t, "services", "--socket", h.Socket); !strings.Contains(out, "module ip_vs is missing") {
		t.Errorf("fairlead services:\n%s", out)
	}
	if s := harness.Services(t, h)["web"]; s.Condition() != observe.ConditionOK || s.DataPlane != "xdp" || s.DataPlaneReason != "" {
		t.Errorf("web: %s, on %s (%s)", s.Condition(), s.DataPlane, s.DataPlaneReason)
	}
	if name, err := l.Get(t.Context(), "client", harness.Origin(harness.VIP4)); err != nil || !strings.HasPrefix(name, "server") {
		t.Errorf("%s is answered by %q (%v)", harness.VIP4, name, err)
	}
	if kind := harness.Status(t, h).DataPlane.Kind; kind != "xdp" {
		t.Errorf("the agent's data plane is %q", kind)
	}
}
