// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

const (
	// socketFlows is the number of connections whose CPU receive flow steering remembers.
	socketFlows = 65536
	// gigabit is the speed up to which one core can handle all interrupts, in Mbit/s.
	gigabit = 1000
)

// plan assigns CPUs to an interface. Its rules for RSS (interrupts), RPS and XPS are in the
// kernel's Documentation/networking/scaling.rst.
type plan struct {
	*device
	profile Profile
	machine *machine
	// near has the CPUs of the interface's NUMA node, or all, in the order in which queues get
	// them: first the first CPUs of all cores, and NUMA nodes in turn.
	near []cpu
	// queues is the number of channels after Apply, or unlimited.
	queues int
	// oneCore says that one CPU handles all interrupts.
	oneCore bool
}

// advise returns all settings with the values for a profile, without settings of queues that the
// advised number of channels removes.
func (m *machine) advise(profile Profile) (advised []Setting) {
	plans := map[string]plan{"": {profile: profile}}
	for name, d := range m.devices {
		plans[name] = newPlan(profile, m, *d)
	}
	for _, s := range m.settings {
		p := plans[s.Interface]
		perChannel := s.kind >= interrupt && (s.kind != xps || p.combined)
		if !perChannel || s.queue < p.queues {
			advised = append(advised, p.advise(s).judged())
		}
	}
	return advised
}

func newPlan(profile Profile, m *machine, d device) plan {
	p := plan{profile: profile, machine: m, device: &d, queues: math.MaxInt}
	far := func(c cpu) bool { return c.node != d.node }
	if p.near = slices.DeleteFunc(slices.Clone(m.cpus), far); len(p.near) == 0 {
		p.near = slices.Clone(m.cpus)
	}
	slices.SortFunc(p.near, func(a, b cpu) int {
		return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.core, b.core), cmp.Compare(a.node, b.node))
	})
	if d.channels > 0 {
		p.queues = min(d.channels, len(p.near))
	}
	d.receive = min(d.receive, p.queues)
	if d.combined {
		d.send = min(d.send, p.queues)
	}
	cores := slices.IndexFunc(p.near, func(c cpu) bool { return c.thread > 0 })
	if cores < 0 {
		cores = len(p.near)
	}
	p.oneCore = profile == Kernel && 0 < d.speed && d.speed <= gigabit && d.receive < cores
	return p
}

// advise returns a setting with the plan's value.
func (p plan) advise(s Setting) Setting {
	const rfs = "RFS: packets go to the CPU that reads their socket"
	switch {
	case s.Name == "nf_conntrack" && p.profile == XDP:
		s.Reason = "native XDP runs before connection tracking"
	case s.Name == "nf_conntrack" && s.Now != "not loaded" && s.Now != "0 connections":
		s.Advice = "nftables: notrack at priority raw, for VIPs that neither a rule nor IPVS translates"
		s.Reason = "each tracked connection takes memory, and each of its packets a look-up"
	case s.kind == channels:
		s.Advice = strconv.Itoa(p.queues)
		s.Reason = fmt.Sprintf("one for each of %d CPUs, at most %d; a change interrupts the link", len(p.near), p.channels)
	case s.Name == "rxvlan" && p.profile == XDP:
		s.Advice, s.Reason = "off", "XDP reads VLAN tags in the frame"
	case s.Name == "txvlan" && p.profile == XDP:
		s.Advice, s.Reason = "off", "frames that the kernel sends have the tag where XDP and captures read it"
	case s.Name == "lro" && p.profile != Server:
		s.Advice, s.Reason = "off", "merged packets are too large to be forwarded"
	case s.kind == interrupt && p.oneCore:
		return s.setCPUs([]int{p.near[0].number}, "one core handles the interrupts of 1 Gbit/s, and RPS uses the others")
	case s.kind == interrupt:
		return s.setCPUs([]int{p.interrupt(s.queue).number}, "a CPU for each queue, if possible on a core of its own")
	case s.kind == rps:
		return s.setCPUs(p.steer())
	case (s.kind == flowEntries || s.kind == flowCount) && p.profile != Server:
		s.Reason = "RFS follows sockets, and forwarded packets have none"
	case s.kind == flowEntries:
		s.Advice, s.Reason = strconv.Itoa(socketFlows), rfs
	case s.kind == flowCount: // a power of two
		s.Advice, s.Reason = strconv.Itoa(1<<bits.Len(uint(socketFlows/max(1, p.receive)))>>1), rfs
	case s.kind == xps && p.profile == XDP:
		s.Reason = "native XDP chooses its own queue"
	case s.kind == xps:
		return s.setCPUs(p.senders(s.queue), "each CPU sends through the queue that is nearest")
	}
	return s
}

// setCPUs returns the setting with a mask as advice.
func (s Setting) setCPUs(cpus []int, reason string) Setting {
	slices.Sort(cpus)
	s.Advice, s.CPUs, s.Reason = formatMask(cpus, s.Now), formatList(cpus), reason
	return s
}

// interrupt returns the CPU for the interrupts of a queue.
func (p plan) interrupt(queue int) cpu {
	if p.oneCore {
		return p.near[0]
	}
	return p.near[queue%len(p.near)]
}

// steer returns the CPUs of receive packet steering: near the interface, on cores without its
// interrupts. A server uses the first CPU of each core.
func (p plan) steer() (cpus []int, reason string) {
	if p.profile == XDP {
		return nil, "RPS does nothing for native XDP, which runs before it; other packets stay on their CPU"
	}
	for _, c := range p.near {
		busy := false
		for queue := range min(p.interrupts, p.receive) {
			other := p.interrupt(queue)
			busy = busy || other.node == c.node && other.core == c.core
		}
		if !busy && (p.profile != Server || c.thread == 0) {
			cpus = append(cpus, c.number)
		}
	}
	switch {
	case len(cpus) == 0:
		return nil, "each core has interrupts of a queue"
	case p.interrupts == 0:
		return cpus, "the interface has no interrupts: its packets arrive on their senders' CPUs"
	default:
		return cpus, "cores without the interface's interrupts handle the protocols"
	}
}

// senders returns the CPUs that use a send queue.
func (p plan) senders(queue int) (cpus []int) {
	for _, c := range p.machine.cpus {
		if p.sendQueue(c) == queue {
			cpus = append(cpus, c.number)
		}
	}
	return cpus
}

// sendQueue returns the send queue of a CPU: the one that it receives from, else one of its NUMA
// node, the same for all CPUs of a core.
func (p plan) sendQueue(c cpu) int {
	if queue := slices.Index(p.near, c); 0 <= queue && queue < p.send {
		return queue
	}
	var near, all []int
	for queue := range p.send {
		if all = append(all, queue); p.near[queue%len(p.near)].node == c.node {
			near = append(near, queue)
		}
	}
	if len(near) == 0 {
		near = all
	}
	return near[c.core%len(near)]
}
