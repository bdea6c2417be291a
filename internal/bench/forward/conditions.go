// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
		Destination: w.deviceMAC, Source: w.testerMAC, Client: clients, VIP: vip(c.protocol),
		VIPs: 1, Flows: c.flows, Size: size, SYN: c.protocol == lb.TCP,
	}
}

// newPlan decides what is measured.
func newPlan(cfg Config) (plan, error) {
	p := plan{rounds: 7, warmUp: 200 * time.Millisecond, duration: 400 * time.Millisecond}
	sizes := frameSizes
	if cfg.Quick {
		p.rounds, p.warmUp, p.duration = 5, 50*time.Millisecond, 200*time.Millisecond
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
		if !cfg.Quick || size == "64" {
			p.cases = append(p.cases, conditions{lb.TCP, establishedFlows, size})
		}
	}
	if slices.Contains(sizes, "64") {
		p.cases = append(p.cases, smallAndNew)
		if !cfg.Quick {
			p.cases = append(p.cases, conditions{lb.TCP, newFlows, "64"})
		}
	}
	return p, nil
}

func checkSizes(sizes []string) error {
	for _, s := range sizes {
		n, err := strconv.Atoi(s)
		if s != mixSize && (err != nil || n < 60 || n > generator.MaxSize) {
			return fmt.Errorf("frame size %q: want 60 to %d, or %s", s, generator.MaxSize, mixSize)
		}
	}
	return nil
}

// chooseDevices returns those of the given names, or all.
func chooseDevices(names []string) ([]device, error) {
	all := devices()
	if len(names) == 0 {
		return all, nil
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
