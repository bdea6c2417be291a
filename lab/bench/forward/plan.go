// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/wire"
)

type plan struct {
	devices []device
	cases   []conditions
	rounds  int
	// duration of one measurement; warmUp precedes the first.
	warmUp, duration time.Duration
	// fill is a longer warm-up for stateful devices before new flows are measured:
	// their tables hold the flows of the last seconds, as in steady operation (the
	// kernel keeps an unanswered UDP flow for 30 s).
	fill time.Duration
}

func (p *plan) warmUpOf(d device, c conditions) time.Duration {
	if d.stateful && c.flows == newFlows {
		return max(p.warmUp, p.fill)
	}
	return p.warmUp
}

func newPlan(cfg Config) (plan, error) {
	p := plan{rounds: 5, warmUp: 200 * time.Millisecond, fill: 15 * time.Second, duration: 400 * time.Millisecond}
	sizes := frameSizes
	if cfg.Quick {
		p.rounds, p.warmUp, p.fill, p.duration = 4, 50*time.Millisecond, 8*time.Second, 150*time.Millisecond
		sizes = []string{"64", "128"}
	}
	if len(cfg.Sizes) > 0 {
		sizes = cfg.Sizes
	}
	if err := checkSizes(sizes); err != nil {
		return plan{}, err
	}
	var err error
	if p.devices, err = chooseDevices(cfg.Devices); err != nil {
		return plan{}, err
	}
	for _, size := range sizes {
		p.cases = append(p.cases, conditions{lb.UDP, establishedFlows, size})
		if size == "64" && !cfg.Established {
			p.cases = append(p.cases, conditions{lb.TCP, establishedFlows, size})
		}
	}
	if slices.Contains(sizes, "64") && !cfg.Established {
		p.cases = append(p.cases, smallAndNew)
	}
	return p, nil
}

func checkSizes(sizes []string) error {
	for _, s := range sizes {
		n, err := strconv.Atoi(s)
		if s != mixSize && (err != nil || n < 60 || n > wire.MaxSize) {
			return fmt.Errorf("frame size %q: want 60 to %d, or %s", s, wire.MaxSize, mixSize)
		}
	}
	return nil
}

// chooseDevices returns the named devices, or all that every kernel has.
func chooseDevices(names []string) ([]device, error) {
	all := devices()
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(d device) bool { return d.onRequest }), nil
	}
	var chosen []device
	for _, name := range names {
		i := slices.IndexFunc(all, func(d device) bool { return d.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no device is called %q: there are %s", name, strings.Join(deviceNames(all), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

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

// load is the packets for a link.
func (c conditions) load(w *link) wire.Load {
	size := wire.Mix
	if c.size != mixSize {
		size, _ = strconv.Atoi(c.size) // checked by checkSizes
	}
	return wire.Load{
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
