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

// With kind xdp a file with a service that only IPVS can serve is refused. With kind auto, in a
// kernel without IPVS, that service has an error that names the module; it stays as it was, and
// others are served.
func TestKindAuto(t *testing.T) {
	t.Parallel()
	l := bringUp(t, "kind", small(lb.NAT)(t))
	h := l.Hosts(netlab.Balancer)[0]
	whole := l.Config(h.Name, l.Topology.Services)
	text := strings.Replace(whole, "name: web6\n", "name: web6\n    scheduler: lc\n", 1)
	if text == whole {
		t.Fatalf("no service web6 in:\n%s", text)
	}
	const why = "scheduler: scheduler lc can't be served by data plane xdp"
	l.Write(t, &h, text)
	harness.Until(t, "the file is refused", func() bool { return strings.Contains(harness.Status(t, &h).Config.Error, why) })

	auto := func(text string) string { return strings.Replace(text, "kind: xdp\n", "kind: auto\n", 1) }
	whole, text = auto(whole), auto(text)
	l.Write(t, &h, whole)
	l.KillAgent(t, &h, "agent")
	l.StartAgent(t, &h)
	l.Write(t, &h, text)
	var second observe.Service
	harness.Until(t, "web6 has been tried", func() bool {
		second = harness.Services(t, &h)["web6"]
		return harness.Status(t, &h).Config.Digest == harness.Digest(text) && (second.Error != "" || second.DataPlane == "ipvs")
	})
	if second.Error == "" {
		t.Skipf("this kernel has IPVS: web6 is on it (%s)", second.DataPlaneReason)
	}
	if !strings.Contains(second.Error, "data plane ipvs: kernel module ip_vs is missing") || !strings.Contains(second.Error, why) {
		t.Errorf("web6: %s", second.Error)
	}
	if out := harness.Show(t, "services", "--socket", h.Socket); !strings.Contains(out, "module ip_vs is missing") {
		t.Errorf("fairlead services:\n%s", out)
	}
	if s := harness.Services(t, &h)["web"]; s.Condition() != observe.ConditionOK || s.DataPlane != "xdp" || s.DataPlaneReason != "" {
		t.Errorf("web: %s, on %s (%s)", s.Condition(), s.DataPlane, s.DataPlaneReason)
	}
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		if name, err := l.Get(t.Context(), "client", harness.Origin(vip)); err != nil || !strings.HasPrefix(name, "server") {
			t.Errorf("%s is answered by %q (%v)", vip, name, err)
		}
	}
	if kind := harness.Status(t, &h).DataPlane.Kind; kind != "xdp" {
		t.Errorf("the agent's data plane is %q", kind)
	}

	l.Write(t, &h, whole)
	harness.Until(t, "web6 is as it was", func() bool {
		s := harness.Services(t, &h)["web6"]
		return s.Condition() == observe.ConditionOK && s.DataPlane == "xdp"
	})
}
