// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"fmt"
	"strconv"
	"strings"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/wire"
)

// Numbers of flows. With newFlows a round ends long before a flow repeats: nearly
// every packet begins one.
const (
	establishedFlows = 1 << 10
	newFlows         = 1 << 23
)

// mixSize is the name of wire.Mix.
const mixSize = "imix"

// frameSizes are the sizes of RFC 2544, section 9.1, the largest one of the Kakao
// paper, and the mix.
var frameSizes = []string{"64", "128", "256", "512", "1024", "1280", "1510", mixSize}

type conditions struct {
	protocol lb.Protocol // TCP packets are SYNs
	flows    int
	size     string
}

// The conditions of claims.
var (
	small       = conditions{lb.UDP, establishedFlows, "64"}
	larger      = conditions{lb.UDP, establishedFlows, "128"}
	smallAndNew = conditions{lb.UDP, newFlows, "64"}
)

// cases are the conditions with these sizes, and of the smallest ones also those with new flows
// and TCP.
func cases(sizes []string) (all []conditions) {
	for _, size := range sizes {
		all = append(all, conditions{lb.UDP, establishedFlows, size})
	}
	return append(all, smallAndNew, conditions{lb.TCP, establishedFlows, "64"})
}

// String returns for example "udp, 64 bytes, 1024 flows".
func (c conditions) String() string {
	size := c.size
	if size != mixSize {
		size += " bytes"
	}
	return fmt.Sprintf("%s, %s, %d flows", c.traffic(), size, c.flows)
}

// cell is the name of the cell of a device.
func (c conditions) cell(device string) string { return c.String() + ", " + device }

func (c conditions) traffic() string {
	if c.protocol == lb.TCP {
		return "tcp-syn"
	}
	return c.protocol.String()
}

func (c conditions) labels(device string) map[string]string {
	state := "established"
	if c.flows == newFlows {
		state = "new"
	}
	return map[string]string{"device": device, "traffic": c.traffic(), "frame": c.size, "flows": strconv.Itoa(c.flows), "state": state}
}

// load is the packets.
func (c conditions) load() wire.Load {
	size, err := strconv.Atoi(c.size)
	if err != nil {
		size = wire.Mix
	}
	return wire.Load{
		Destination: deviceMAC, Source: routerMAC, Client: clients, VIP: vip(c.protocol),
		VIPs: 1, Flows: c.flows, Size: size, SYN: c.protocol == lb.TCP,
	}
}

// findings are the rates of the plan's cells.
type findings struct {
	plan
	found bench.Found[rate]
}

// report adds all results, ratios and verdicts.
func (f findings) report(r *bench.Report) error {
	for _, c := range f.cases {
		for _, d := range f.devices {
			labels := c.labels(d.name)
			r.Add("throughput", "packets/s", f.rate(c, d.name), labels)
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
		if err := r.Compare(bench.Comparison{Name: q.name, A: q.a, B: q.b, Claim: q.claim, Target: bench.AtLeast(q.least)}); err != nil {
			return err
		}
	}
	return nil
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
