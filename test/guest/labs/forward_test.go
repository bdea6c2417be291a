//go:build guest && amd64

// SPDX-License-Identifier: Apache-2.0

package labs

import (
	"regexp"
	"testing"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/bench/forward"
	"fairlead.io/fairlead/lab/netlab"
)

// Frames pass through both data planes and nftables in bench forward. The log has the ratios:
// they are of this emulated processor and never compared with a host's.
func TestForward(t *testing.T) {
	devices := []string{"none", "reflector", "l2dsr", "nat", "ipvs-l2dsr", "ipvs-nat", "nftables"}
	report, err := forward.Run(t.Context(), forward.Config{
		Config:  bench.Config{Labs: netlab.Labs{Dir: t.TempDir()}, Quick: true, Only: regexp.MustCompile("^udp, 64 bytes, 1024 flows")},
		Devices: devices,
	})
	if err != nil {
		t.Fatal(err)
	}
	forwards := map[string]bool{}
	for _, r := range report.Results {
		forwards[r.Labels["device"]] = r.Name == "throughput" && r.Min > 0 || forwards[r.Labels["device"]]
	}
	for _, device := range devices {
		if !forwards[device] {
			t.Errorf("no frames came through device %s", device)
		}
	}
	report.Verdicts = nil // their targets are for a host
	if err := report.WriteTable(t.Output()); err != nil {
		t.Error(err)
	}
}
