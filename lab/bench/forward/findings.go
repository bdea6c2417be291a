// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"slices"
	"strings"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
)

// onTheWire is the size of preamble and gap in bytes (IEEE 802.3).
const onTheWire = 8 + 12

// findings are the rates of the plan's cells.
type findings struct {
	plan
	found bench.Found[rate]
}

// report adds all results, ratios and verdicts.
func (f findings) report(r *bench.Report) error {
	for _, c := range slices.Concat(f.cases...) {
		for _, d := range f.devices {
			labels := c.labels(d)
			if c.two {
				r.Add("throughput_two_processors", "packets/s", f.rate(c, d.name), labels)
				continue
			}
			r.Add("throughput", "packets/s", f.rate(c, d.name), labels)
			load := c.load(d, 0)
			r.Add("layer2_rate", "Gbit/s", f.bits(c, d.name, load.MeanSize()), labels)
			r.Add("layer1_rate", "Gbit/s", f.bits(c, d.name, load.MeanSize()+onTheWire), labels)
			r.Add("lost", "share", f.lost(c, d.name), labels)
			r.Add("device_cost", "ns/packet", f.deviceCost(c, d.name), labels)
		}
	}
	// Without a claim: IPVS is usually measured on an emulated processor, in a guest kernel.
	for _, pair := range [][2]string{
		{l2dsrDevice, ipvsL2DSRDevice}, {natDevice, ipvsNATDevice}, {ipvsL2DSRDevice, nftablesDevice}, {ipvsNATDevice, nftablesDevice},
	} {
		name := strings.ReplaceAll(pair[0]+"_over_"+pair[1]+"_64", "-", "_")
		if err := r.Compare(bench.Comparison{Name: name, A: f.rate(small, pair[0]), B: f.rate(small, pair[1])}); err != nil {
			return err
		}
	}
	return r.Compare(slices.Concat(f.claims(), f.scenarioClaims(), f.twoProcessors())...)
}

func (f findings) claims() []bench.Comparison {
	return []bench.Comparison{
		atLeast(0.90, "l2dsr_over_reflector_64", f.rate(small, l2dsrDevice), f.rate(small, reflectorDevice), "L2 DSR throughput through veth over a bare XDP reflector's, 64 bytes"),
		atLeast(0.98, "l2dsr_over_reflector_128", f.rate(larger, l2dsrDevice), f.rate(larger, reflectorDevice), "L2 DSR throughput through veth over a bare XDP reflector's, 128 bytes"),
		atLeast(5, "l2dsr_over_iptables_64", f.rate(small, l2dsrDevice), f.rate(small, iptablesDevice), "L2 DSR throughput over iptables DNAT's, 64 bytes, 1024 established UDP flows"),
		atLeast(16, "l2dsr_over_iptables_64_new", f.rate(smallAndNew, l2dsrDevice), f.rate(smallAndNew, iptablesDevice), "L2 DSR throughput over iptables DNAT's, 64 bytes, a new flow in nearly every packet"),
		atLeast(2.5, "nat_over_iptables_64", f.rate(small, natDevice), f.rate(small, iptablesDevice), "NAT throughput over iptables DNAT's, 64 bytes, 1024 established UDP flows"),
		atLeast(4, "nat_over_iptables_64_new", f.rate(smallAndNew, natDevice), f.rate(smallAndNew, iptablesDevice), "NAT throughput over iptables DNAT's, 64 bytes, a new flow in nearly every packet"),
		atLeast(0.4, "filtered_over_pods_64", f.rate(small, filteredDevice), f.rate(small, podsDevice), "DSR throughput to pods of the node through netfilter over that past it, 64 bytes, 1024 established UDP flows"),
		atLeast(10, "iptables_over_l2dsr_device_cost_64", f.deviceCost(small, iptablesDevice), f.deviceCost(small, l2dsrDevice), "iptables DNAT's cost per packet over L2 DSR's, sender and sink subtracted, established"),
	}
}

// scenarioClaims are about the scenarios of the Kakao paper: A has one VIP and 255 servers, B has
// 128 and 4,000.
func (f findings) scenarioClaims() (all []bench.Comparison) {
	for _, size := range []string{"64", "imix", "imix-rate"} {
		udp := scenario(lb.UDP, size)
		all = append(all, atLeast(0.95, "scenario_b_over_a_"+strings.ReplaceAll(size, "-", "_"), f.rate(udp, scenarioB), f.rate(udp, scenarioA),
			"L2 DSR throughput with 128 VIPs and 4,000 servers over one VIP and 255, frames of "+size))
	}
	udp, syn := scenario(lb.UDP, "64"), scenario(lb.TCP, "64")
	both := atLeast(0.95, "scenario_a_udp_over_syn_64", f.rate(udp, scenarioA), f.rate(syn, scenarioA), "L2 DSR throughput of UDP over SYNs, one VIP and 255 servers, 64 bytes")
	all = append(all, both,
		atLeast(0.90, "scenario_a_over_reflector_64", f.rate(udp, scenarioA), f.rate(udp, reflectorDevice), "L2 DSR throughput with one VIP and 255 servers over a bare XDP reflector's, 64 bytes"),
		atLeast(5, "scenario_b_over_iptables_64", f.rate(udp, scenarioB), f.rate(udp, iptables128), "L2 DSR throughput with 128 VIPs and 4,000 servers over iptables DNAT's with 128 rules, 64 bytes, established UDP flows"))
	both.Target = bench.AtMost(1.05)
	return append(all, both)
}

// twoProcessors compares two processors with one.
func (f findings) twoProcessors() (all []bench.Comparison) {
	for _, device := range onTwo {
		all = append(all, bench.Comparison{Name: "two_processors_over_one_" + device, A: f.rate(smallOnTwo, device), B: f.rate(small, device)})
	}
	return append(all, atLeast(2.5, "l2dsr_over_iptables_on_two", f.rate(small, l2dsrDevice), f.rate(smallOnTwo, iptablesDevice),
		"L2 DSR throughput on one processor over iptables DNAT's on two, 64 bytes, 1024 established UDP flows"))
}

// atLeast is a claim about the ratio of a to b.
func atLeast(least float64, name string, a, b bench.Runs, claim string) bench.Comparison {
	return bench.Comparison{Name: name, A: a, B: b, Claim: claim, Target: bench.AtLeast(least)}
}

// of returns a quantity of all rounds; nil if the device wasn't measured.
func (f findings) of(c conditions, device string, quantity func(rate) float64) (all bench.Runs) {
	for _, round := range f.found[c.cell(device)] {
		all = append(all, quantity(round))
	}
	return all
}

// rate is a device's throughput, and lost its share of lost frames.
func (f findings) rate(c conditions, device string) bench.Runs {
	return f.of(c, device, func(r rate) float64 { return r.PerSecond })
}

// bits is the rate of frames of a mean size in Gbit/s.
func (f findings) bits(c conditions, device string, size float64) bench.Runs {
	return f.of(c, device, func(r rate) float64 { return r.PerSecond * size * 8 / 1e9 })
}

func (f findings) lost(c conditions, device string) bench.Runs {
	return f.of(c, device, func(r rate) float64 { return r.Lost })
}

// deviceCost is the time of a packet in the device alone, in nanoseconds: the time without a
// device is subtracted, round by round. It is nil if one of them wasn't measured.
func (f findings) deviceCost(c conditions, device string) bench.Runs {
	if device == noDevice {
		return nil
	}
	cost := func(r rate) float64 { return 1e9 / r.PerSecond }
	return f.of(c, device, cost).Minus(f.of(c, noDevice, cost))
}
