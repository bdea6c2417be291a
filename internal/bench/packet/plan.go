// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strconv"

	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
)

// manyFlows is the number of flows that no cache holds.
const manyFlows = 1 << 20

// shape is how many services there are, with how many backends each.
type shape struct{ vips, backends int }

var (
	oneService = shape{1, 255}
	whole      = shape{128, 4000}
)

// traffic is what the packets have in common.
type traffic struct {
	shape
	protocol lb.Protocol
	ipv6     bool
}

// String returns for example "tcp over ipv4, 1 x 255".
func (t traffic) String() string {
	return fmt.Sprintf("%s over %s, %d x %d", t.protocol, t.family(), t.vips, t.backends)
}

func (t traffic) family() string {
	if t.ipv6 {
		return "ipv6"
	}
	return "ipv4"
}

// subject is a program that is measured.
type subject struct {
	name     string // the forwarding mode, or one of the two below
	mode     lb.Forward
	tracking lb.Tracking
}

// Programs that are no balancers: one does nothing, the other one swaps the
// Ethernet addresses.
var (
	bare      = subject{name: "none"}
	reflector = subject{name: "reflector"}
)

func balancer(mode lb.Forward, tracking lb.Tracking) subject {
	return subject{name: mode.String(), mode: mode, tracking: tracking}
}

// conditions are what a figure is about.
type conditions struct {
	traffic
	subject
	flows int
}

func (c conditions) labels() map[string]string {
	labels := map[string]string{
		"program": c.name, "protocol": c.protocol.String(), "family": c.family(), "flows": strconv.Itoa(c.flows),
		"vips": strconv.Itoa(c.vips), "backends": strconv.Itoa(c.backends),
	}
	if c.mode != 0 {
		labels["tracking"] = c.tracking.String()
	}
	return labels
}

// group is what is compared within the same rounds.
type group struct {
	traffic
	subjects []subject
	flows    []int
}

// plan is what is measured, and how often.
type plan struct {
	groups  []group
	rounds  int
	packets int // of one measurement
}

func newPlan(quick bool) plan {
	all := []subject{bare, reflector, balancer(lb.L2DSR, lb.TrackingFull)}
	for _, mode := range xdp.Limits().Forwards {
		all = append(all, balancer(mode, lb.TrackingMinimal))
	}
	flows := []int{1, 1 << 10, 1 << 16, manyFlows}
	if quick {
		few := []subject{bare, balancer(lb.L2DSR, lb.TrackingMinimal)}
		return plan{rounds: 4, packets: 1 << 18, groups: []group{
			{traffic{oneService, lb.TCP, false}, all, flows},
			{traffic{oneService, lb.TCP, true}, few, []int{1, manyFlows}},
			{traffic{oneService, lb.UDP, false}, few, []int{1, manyFlows}},
			{traffic{whole, lb.TCP, false}, few, []int{manyFlows}},
		}}
	}
	p := plan{rounds: 7, packets: 1 << 19}
	for _, s := range []shape{oneService, whole} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			for _, ipv6 := range []bool{false, true} {
				p.groups = append(p.groups, group{traffic{s, protocol, ipv6}, all, flows})
			}
		}
	}
	return p
}
