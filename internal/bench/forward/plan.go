// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/generator"
	"fairlead.io/fairlead/internal/lb"
)

// plan is what is measured, and for how long.
type plan struct {
	devices []device
	cases   []conditions
	rounds  int
	// duration is that of one measurement, warmUp of what goes before the first.
	warmUp, duration time.Duration
	// fill is a longer warm-up for devices that remember flows, before new flows
	// are measured: they have to look for each among those of the last seconds, as
	// in steady operation (the kernel keeps an unanswered UDP flow for 30 s).
	fill time.Duration
}

func (p *plan) warmUpOf(d device, c conditions) time.Duration {
	if d.remembers && c.flows == newFlows {
		return max(p.warmUp, p.fill)
	}
	return p.warmUp
}

// newPlan decides what is measured.
func newPlan(cfg Config) (plan, error) {
	p := plan{rounds: 7, warmUp: 200 * time.Millisecond, fill: 15 * time.Second, duration: 400 * time.Millisecond}
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
