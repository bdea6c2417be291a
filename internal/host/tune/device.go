// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// device is a network interface.
type device struct {
	// node is the number of its NUMA node, negative if that isn't known.
	node int
	// speed is in Mbit/s, not positive if it isn't known.
	speed int
	// channels is the largest number of them, 0 if it can't be changed.
	channels int
	combined bool // channels receive and send
	// interrupts of queues that receive, and queues for each direction.
	interrupts, receive, send int
}

// readDevice reads the settings of an interface.
func (m *machine) readDevice(name string) error {
	if _, err := os.Stat(m.path("sys/class/net/%s/queues", name)); err != nil || strings.Contains(name, "/") {
		return errors.Join(errors.New("no such interface"), err)
	}
	d := &device{node: -1}
	m.devices[name] = d
	// Virtual interfaces have no node, and the speed can't be read while the link is down.
	if text, err := m.text("sys/class/net/%s/device/numa_node", name); err == nil {
		m.settings = append(m.settings, Setting{Interface: name, Name: "numa node", Now: text})
		d.node, _ = strconv.Atoi(text)
	}
	if text, err := m.text("sys/class/net/%s/speed", name); err == nil {
		d.speed, _ = strconv.Atoi(text)
	}
	return errors.Join(m.readChannels(name, d), m.readOffloads(name), m.readInterrupts(name, d), m.readQueues(name, d))
}

// readChannels reads the number of channels that receive.
func (m *machine) readChannels(name string, d *device) error {
	c, err := m.Devices.GetChannels(name)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("channels: %w", err)
	}
	count := &c.RxCount
	d.channels, d.combined = int(c.MaxRx), c.MaxCombined > 0
	if d.combined {
		count, d.channels = &c.CombinedCount, int(c.MaxCombined)
	}
	if d.channels == 0 {
		return nil
	}
	m.settings = append(m.settings, Setting{
		Interface: name, Name: "channels", Now: fmt.Sprint(*count), kind: channels,
		write: func(value string) error {
			_, err := fmt.Sscan(value, count)
			if err == nil {
				_, err = m.Devices.SetChannels(name, c)
			}
			return err
		},
	})
	return nil
}

// readOffloads reads those features that can be changed, by ethtool's short names.
func (m *machine) readOffloads(name string) error {
	features, err := m.Devices.FeaturesWithState(name)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("offloads: %w", err)
	}
	for _, o := range [...][2]string{{"rxvlan", "rx-vlan-hw-parse"}, {"txvlan", "tx-vlan-hw-insert"}, {"lro", "rx-lro"}} {
		state := features[o[1]]
		if !state.Available || state.NeverChanged {
			continue
		}
		setting := Setting{Interface: name, Name: o[0], Now: "off", kind: offload}
		if state.Active {
			setting.Now = "on"
		}
		setting.write = func(value string) error { return m.Devices.Change(name, map[string]bool{o[1]: value == "on"}) }
		m.settings = append(m.settings, setting)
	}
	return nil
}

// received matches the names of interrupts of queues that receive, such as eth0-TxRx-0, eth0-rx-1,
// mlx5_comp0@pci:0000:3b:00.0 and virtio3-input.0. Others are for sending, or for the link.
var received = regexp.MustCompile(`(?i)(?:tx-?rx|rx-?tx|rx|input|comp|fp|ntfy-blk)[-._]?(\d+)(?:@.*)?$`)

// readInterrupts reads which CPUs handle the interrupts of queues that receive.
func (m *machine) readInterrupts(name string, d *device) error {
	text, err := m.text("proc/interrupts")
	if err != nil {
		return err
	}
	listed, errListed := os.ReadDir(m.path("sys/class/net/%s/device/msi_irqs", name))
	if errListed != nil { // the interrupts of a virtio device belong to the PCI device above it
		listed, _ = os.ReadDir(m.path("sys/class/net/%s/device/../msi_irqs", name))
	}
	own := regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(name) + `($|\W)`)
	var found []Setting
	for line := range strings.Lines(text) {
		fields := append(strings.Fields(line), "")
		number, action := strings.TrimSuffix(fields[0], ":"), fields[max(0, len(fields)-2)]
		is := own.MatchString(action)
		if len(listed) > 0 {
			is = slices.ContainsFunc(listed, func(e os.DirEntry) bool { return e.Name() == number })
		}
		if match := received.FindStringSubmatch(action); is && match != nil {
			queue, _ := strconv.Atoi(match[1])
			found = append(found, Setting{Interface: name, Name: "irq " + action, File: number, kind: interrupt, queue: queue})
		}
	}
	slices.SortStableFunc(found, func(a, b Setting) int { return cmp.Compare(a.queue, b.queue) })
	for i, irq := range found {
		irq.queue = i // some drivers count from 1
		err = errors.Join(err, m.addFile(irq, "proc/irq/%s/smp_affinity", irq.File))
	}
	d.interrupts = len(found)
	return err
}

// readQueues reads how packets of the interface's queues are steered. A device with one queue has
// no XPS: its file can't be read.
func (m *machine) readQueues(name string, d *device) error {
	for _, file := range [...]struct {
		format string
		kind   kind
		count  *int
	}{{"rx-%d/rps_cpus", rps, &d.receive}, {"rx-%d/rps_flow_cnt", flowCount, new(int)}, {"tx-%d/xps_cpus", xps, &d.send}} {
		for before := -1; before < len(m.settings); *file.count++ {
			before = len(m.settings)
			setting := Setting{Interface: name, Name: fmt.Sprintf(file.format, *file.count), kind: file.kind, queue: *file.count}
			if err := m.addFile(setting, "sys/class/net/%s/queues/%s", name, setting.Name); err != nil {
				return err
			}
		}
		*file.count-- // of the file that doesn't exist
	}
	return nil
}
