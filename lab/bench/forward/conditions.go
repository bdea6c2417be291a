// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"fmt"
	"net/netip"
	"strconv"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/wire"
)

// Numbers of flows. With newFlows a round ends long before a flow repeats: nearly
// every packet begins one. With scenarioFlows nearly all of 4,000 servers have one.
const (
	establishedFlows = 1 << 10
	scenarioFlows    = 1 << 14
	newFlows         = 1 << 23
)

// mixes are two readings of 58.3, 33.3 and 8.3 percent of the frames (Kakao paper, section VI.C):
// of their number, and of the line rate with preamble and gap, as the paper's results have it.
var mixes = map[string]wire.Mix{"imix": {7, 4, 1}, "imix-rate": {128, 10, 1}}

// frameSizes are the sizes of RFC 2544, section 9.1, the largest one of the Kakao
// paper, and the mixes.
var frameSizes = []string{"64", "128", "256", "512", "1024", "1280", "1510", "imix", "imix-rate"}

// checkSequence is the size of a frame check sequence in bytes.
const checkSequence = 4

// conditions of one measurement.
type conditions struct {
	protocol lb.Protocol // TCP packets are SYNs
	flows    int
	// size of a frame in bytes, with frame check sequence and without tag, or the name of a mix.
	size string
	// tagged is set for the scenarios of the Kakao paper.
	tagged bool
	// two is set if two processors have a sender, the device and a sink each.
	two bool
}

// onTwo are the devices that are measured on two processors.
var onTwo = []string{l2dsrDevice, natDevice, iptablesDevice}

// The conditions of claims.
var (
	small       = conditions{protocol: lb.UDP, flows: establishedFlows, size: "64"}
	larger      = conditions{protocol: lb.UDP, flows: establishedFlows, size: "128"}
	smallAndNew = conditions{protocol: lb.UDP, flows: newFlows, size: "64"}
	smallOnTwo  = conditions{protocol: lb.UDP, flows: establishedFlows, size: "64", two: true}
)

// scenario is the conditions of the Kakao paper's scenarios.
func scenario(protocol lb.Protocol, size string) conditions {
	return conditions{protocol: protocol, flows: scenarioFlows, size: size, tagged: true}
}

// cases are groups of conditions that are compared: these sizes, and of the smallest ones also two
// processors, new flows and TCP; then the scenarios, in both protocols.
func cases(sizes, scenarioSizes []string) (all [][]conditions) {
	for _, size := range sizes {
		all = append(all, []conditions{{protocol: lb.UDP, flows: establishedFlows, size: size}})
	}
	all[0] = append(all[0], smallOnTwo)
	all = append(all, []conditions{smallAndNew}, []conditions{{protocol: lb.TCP, flows: establishedFlows, size: "64"}})
	for _, size := range scenarioSizes {
		all = append(all, []conditions{scenario(lb.UDP, size), scenario(lb.TCP, size)})
	}
	return all
}

// String returns for example "udp, 64 bytes, 1024 flows".
func (c conditions) String() string {
	size := c.size
	if mixes[size] == (wire.Mix{}) {
		size += " bytes"
	}
	text := fmt.Sprintf("%s, %s, %d flows", c.traffic(), size, c.flows)
	if c.two {
		text = "two processors, " + text
	}
	return text
}

// cell is the name of the cell of a device.
func (c conditions) cell(device string) string { return c.String() + ", " + device }

func (c conditions) traffic() string {
	text := c.protocol.String()
	if c.protocol == lb.TCP {
		text = "tcp-syn"
	}
	if c.tagged {
		text += "-tagged"
	}
	return text
}

// labels are the conditions of a device. In the kernel it gets untagged frames, as the kernel may lack
// VLANs.
func (c conditions) labels(d device) map[string]string {
	c.tagged = c.tagged && d.role != netlab.Router
	state := "established"
	if c.flows == newFlows {
		state = "new"
	}
	return map[string]string{"device": d.name, "traffic": c.traffic(), "frame": c.size, "flows": strconv.Itoa(c.flows), "state": state}
}

// load is the packets for a device on its nth processor.
func (c conditions) load(d device, nth int) wire.Load {
	client := clients.As4()
	client[1] += byte(nth)
	l := wire.Load{
		Destination: deviceMAC, Source: routerMAC, Client: netip.AddrFrom4(client), VIP: d.vip(c.protocol, 0),
		VIPs: max(1, d.vips), Flows: c.flows, Mix: mixes[c.size], SYN: c.protocol == lb.TCP,
	}
	if size, err := strconv.Atoi(c.size); err == nil {
		l.Size = size - checkSequence
	}
	if c.tagged && d.role != netlab.Router { // see labels
		l.VLAN = clientVLAN
	}
	return l
}
