// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"fairlead.io/fairlead/internal/dataplane/xdp/generator"
	"fairlead.io/fairlead/internal/lb"
)

// Numbers of flows. With newFlows a round ends long before a flow comes again,
// so that nearly every packet begins one.
const (
	establishedFlows = 1 << 10
	newFlows         = 1 << 23
)

// mixSize is the name of a mix of frame sizes (generator.Mix).
const mixSize = "imix"

// frameSizes are those of RFC 2544, section 9.1, with the largest one of the
// Kakao paper, and the mix.
var frameSizes = []string{"64", "128", "256", "512", "1024", "1280", "1510", mixSize}

// conditions are what a device is measured under.
type conditions struct {
	protocol lb.Protocol // TCP packets are SYNs
	flows    int
	size     string
}

// String returns for example "udp, 64 bytes, 1024 flows".
func (c conditions) String() string {
	size := c.size
	if size != mixSize {
		size += " bytes"
	}
	return fmt.Sprintf("%s, %s, %d flows", c.traffic(), size, c.flows)
}

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

// load is the packets that are sent over a wire.
func (c conditions) load(w *wire) generator.Load {
	size := generator.Mix
	if c.size != mixSize {
		size, _ = strconv.Atoi(c.size) // checked by checkSizes
	}
	return generator.Load{
		Destination: w.deviceMAC, Source: routerMAC(), Client: clients, VIP: vip(c.protocol),
		VIPs: 1, Flows: c.flows, Size: size, SYN: c.protocol == lb.TCP,
	}
}

// compareConditions orders by protocol, number of flows and size as in
// frameSizes.
func compareConditions(a, b conditions) int {
	return cmp.Or(
		-cmp.Compare(a.protocol, b.protocol), // UDP first
		cmp.Compare(a.flows, b.flows),
		cmp.Compare(slices.Index(frameSizes, a.size), slices.Index(frameSizes, b.size)),
		cmp.Compare(a.size, b.size),
	)
}
