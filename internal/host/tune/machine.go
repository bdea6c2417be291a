// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
)

// Devices has settings of network devices as ethtool(8) does; *ethtool.Ethtool implements it.
type Devices interface {
	GetChannels(device string) (ethtool.Channels, error)
	SetChannels(device string, channels ethtool.Channels) (ethtool.Channels, error)
	FeaturesWithState(device string) (map[string]ethtool.FeatureState, error)
	Change(device string, features map[string]bool) error
}

// System is a machine whose settings are read and written.
type System struct {
	// Root is the folder with proc, sys and etc; "/" for this machine.
	Root    string
	Devices Devices
}

// Open returns this machine, and a function that closes it.
func Open() (System, func(), error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return System{}, nil, fmt.Errorf("ethtool: %w", err)
	}
	return System{"/", tool}, tool.Close, nil
}

// machine has the online CPUs of a system, and its settings.
type machine struct {
	System
	cpus     []cpu
	devices  map[string]*device
	settings []Setting
}

// cpu is a CPU as the kernel counts them, a hyperthread.
type cpu struct {
	number, node int
	// core is the rank of its core in the NUMA node, thread its own rank in the core.
	core, thread int
}

// path returns the name of a file of the system. It may lead through symbolic links, so that
// ".." in it isn't removed.
func (s System) path(format string, args ...any) string {
	return strings.TrimSuffix(s.Root, "/") + "/" + fmt.Sprintf(format, args...)
}

// text reads a file with one value.
func (s System) text(format string, args ...any) (string, error) {
	text, err := os.ReadFile(s.path(format, args...))
	return strings.TrimSuffix(string(text), "\n"), err
}

// read returns the present settings.
func (s System) read(interfaces []string) (*machine, error) {
	m := &machine{System: s, devices: map[string]*device{}}
	entries := Setting{Name: "net.core.rps_sock_flow_entries", kind: flowEntries}
	err := errors.Join(m.readCPUs(), m.readFindings(), m.addFile(entries, "proc/sys/net/core/rps_sock_flow_entries"))
	for _, name := range interfaces {
		if name == "" || m.devices[name] != nil {
			continue
		}
		if errDevice := m.readDevice(name); errDevice != nil {
			err = errors.Join(err, fmt.Errorf("interface %s: %w", name, errDevice))
		}
	}
	return m, err
}

// readCPUs reads the CPUs of each NUMA node, or of a kernel without NUMA.
func (m *machine) readCPUs() error {
	nodes, err := filepath.Glob(m.path("sys/devices/system/node/node[0-9]*"))
	for _, folder := range nodes {
		number, errNode := strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "node"))
		err = errors.Join(err, errNode, m.readNode(number, fmt.Sprintf("sys/devices/system/node/node%d/cpulist", number)))
	}
	if len(nodes) == 0 {
		err = errors.Join(err, m.readNode(0, "sys/devices/system/cpu/online"))
	}
	if len(m.cpus) == 0 {
		err = errors.Join(err, errors.New("no CPUs"))
	}
	return err
}

// readNode reads the CPUs of a NUMA node, which a file lists.
func (m *machine) readNode(node int, file string) error {
	numbers, err := m.list("%s", file)
	cores := map[int]int{} // by the first CPU
	for _, number := range numbers {
		siblings, errCPU := m.list("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", number)
		err = errors.Join(err, errCPU)
		if !slices.Contains(siblings, number) {
			siblings = []int{number}
		}
		if _, known := cores[siblings[0]]; !known {
			cores[siblings[0]] = len(cores)
		}
		m.cpus = append(m.cpus, cpu{number, node, cores[siblings[0]], slices.Index(siblings, number)})
	}
	return err
}

// list reads a file with CPUs.
func (s System) list(format string, args ...any) ([]int, error) {
	text, err := s.text(format, args...)
	if err != nil {
		return nil, err
	}
	cpus, err := parseList(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(format, args...), err)
	}
	return cpus, nil
}

// addFile appends the setting that is the content of a file, unless the kernel lacks it.
func (m *machine) addFile(setting Setting, format string, args ...any) (err error) {
	setting.File = m.path(format, args...)
	setting.Now, err = m.text(format, args...)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	setting.write = func(value string) error {
		f, err := os.OpenFile(setting.File, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	}
	m.settings = append(m.settings, setting)
	return err
}

// obsolete has sysctls without effect that guides for tuning still name.
var obsolete = map[string]string{
	"net.ipv4.tcp_tw_recycle":        "Linux has no such sysctl since 4.12; it refused clients behind NAT",
	"net.ipv4.tcp_low_latency":       "the sysctl has no effect since Linux 4.14",
	"kernel.sched_migration_cost_ns": "since Linux 5.13 it isn't a sysctl but /sys/kernel/debug/sched/migration_cost_ns",
}

// readFindings adds findings that don't depend on an interface.
func (m *machine) readFindings() error {
	balancer := Setting{Name: "irqbalance", Now: "not running"}
	names, err := filepath.Glob(m.path("proc/[0-9]*/comm"))
	for _, name := range names {
		// A process may have ended.
		if text, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(text)) == "irqbalance" {
			balancer.Now = "running, pid " + filepath.Base(filepath.Dir(name))
			balancer.Advice = "stop it, or exclude the interfaces' driver: irqbalance --banmod=DRIVER"
			balancer.Reason = "it moves interrupts to other CPUs again"
		}
	}
	conntrack := Setting{Name: "nf_conntrack", Now: "not loaded"}
	if count, err := m.text("proc/sys/net/netfilter/nf_conntrack_count"); err == nil {
		conntrack.Now = count + " connections"
	}
	m.settings = append(m.settings, balancer, conntrack)
	files, errFiles := filepath.Glob(m.path("etc/sysctl.d/*.conf"))
	for _, file := range append(files, m.path("etc/sysctl.conf")) {
		text, _ := os.ReadFile(file) // it may be absent
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, "=")
			name = strings.ReplaceAll(strings.Trim(name, " \t-"), "/", ".")
			if reason, is := obsolete[name]; is {
				now := strings.TrimSpace(value) + " in " + file
				m.settings = append(m.settings, Setting{Name: name, File: file, Now: now, Advice: "remove the line", Reason: reason})
			}
		}
	}
	return errors.Join(err, errFiles)
}
