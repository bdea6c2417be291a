// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"maps"
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
)

// rates are the rounds of one device under the same conditions.
type rates struct{ perSecond, lost bench.Runs }

func (r rates) add(one rate) rates {
	return rates{append(r.perSecond, one.perSecond), append(r.lost, one.lost)}
}

// cost is the time of a packet from sender to sink, in nanoseconds.
func (r rates) cost() bench.Runs {
	costs := make(bench.Runs, len(r.perSecond))
	for i, rate := range r.perSecond {
		costs[i] = 1e9 / rate
	}
	return costs
}

// findings are the rates by conditions and device name.
type findings map[conditions]map[string]rates

// The conditions of claims.
var (
	small       = conditions{lb.UDP, establishedFlows, "64"}
	larger      = conditions{lb.UDP, establishedFlows, "128"}
	smallAndNew = conditions{lb.UDP, newFlows, "64"}
)

// report adds all results, ratios and verdicts.
func (f findings) report(r *bench.Report) error {
	for _, c := range slices.SortedFunc(maps.Keys(f), compareConditions) {
		for _, name := range slices.Sorted(maps.Keys(f[c])) {
			found, labels := f[c][name], c.labels(name)
			r.Add("throughput", "packets/s", found.perSecond, labels)
			r.Add("lost", "share", found.lost, labels)
			r.Add("device_cost", "ns/packet", f.deviceCost(c, name), labels)
		}
	}
	var all []bench.Comparison
	for _, q := range []struct {
		name  string
		a, b  bench.Runs
		claim string
		least float64
	}{
		{"l2dsr_over_reflector_64", f.rate(small, l2dsrDevice), f.rate(small, reflectorDevice), "L2 DSR throughput through veth over a bare XDP reflector's, 64 bytes", 0.90},
		{"l2dsr_over_reflector_128", f.rate(larger, l2dsrDevice), f.rate(larger, reflectorDevice), "L2 DSR throughput through veth over a bare XDP reflector's, 128 bytes", 0.98},
		{"l2dsr_over_iptables_64", f.rate(small, l2dsrDevice), f.rate(small, iptablesDevice), "L2 DSR throughput over iptables DNAT's, 64 bytes, 1024 established UDP flows", 5},
		{"l2dsr_over_iptables_64_new", f.rate(smallAndNew, l2dsrDevice), f.rate(smallAndNew, iptablesDevice), "L2 DSR throughput over iptables DNAT's, 64 bytes, a new flow in nearly every packet", 16},
		{"nat_over_iptables_64", f.rate(small, natDevice), f.rate(small, iptablesDevice), "NAT throughput over iptables DNAT's, 64 bytes, 1024 established UDP flows", 2.5},
		{"nat_over_iptables_64_new", f.rate(smallAndNew, natDevice), f.rate(smallAndNew, iptablesDevice), "NAT throughput over iptables DNAT's, 64 bytes, a new flow in nearly every packet", 4},
		{"filtered_over_pods_64", f.rate(small, filteredDevice), f.rate(small, podsDevice), "DSR throughput to pods of the node through netfilter over that past it, 64 bytes, 1024 established UDP flows", 0.4},
		{"iptables_over_l2dsr_device_cost_64", f.deviceCost(small, iptablesDevice), f.deviceCost(small, l2dsrDevice), "iptables DNAT's cost per packet over L2 DSR's, sender and sink subtracted, established", 10},
	} {
		all = append(all, bench.Comparison{
			Name: q.name, A: q.a, B: q.b, Claim: q.claim, Source: bench.Documented, Target: bench.AtLeast(q.least),
		})
	}
	// Without a target: IPVS is usually measured on an emulated processor, in a guest kernel.
	for _, pair := range [][2]string{
		{l2dsrDevice, ipvsL2DSRDevice}, {natDevice, ipvsNATDevice}, {ipvsL2DSRDevice, nftablesDevice}, {ipvsNATDevice, nftablesDevice},
	} {
		a, b := f.rate(small, pair[0]), f.rate(small, pair[1])
		if a == nil || b == nil {
			continue
		}
		name := strings.ReplaceAll(pair[0]+"_over_"+pair[1]+"_64", "-", "_")
		if _, err := r.AddRatio(name, a, b); err != nil {
			return err
		}
	}
	return r.Compare(all...)
}

// rate is a device's throughput; nil if it wasn't measured.
func (f findings) rate(c conditions, device string) bench.Runs { return f[c][device].perSecond }

// deviceCost is the time of a packet in the device alone: the time without a device
// is subtracted, round by round. It is nil if one of them wasn't measured.
func (f findings) deviceCost(c conditions, device string) bench.Runs {
	if device == noDevice {
		return nil
	}
	return f[c][device].cost().Minus(f[c][noDevice].cost())
}
