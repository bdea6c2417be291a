// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/safchain/ethtool"
)

// recorded is a machine of testdata. Its only interface is eth0.
type recorded struct {
	System
	t *testing.T

	Channels ethtool.Channels
	Features map[string]ethtool.FeatureState
	// failing is a feature that can't be changed.
	failing string
}

// openRecorded unpacks a machine into a temporary folder.
func openRecorded(t *testing.T, name string) *recorded {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorded{t: t, System: System{Root: t.TempDir()}}
	r.Devices = r
	for _, f := range archive.Files {
		r.put(f.Name, string(f.Data))
	}
	if err := json.Unmarshal([]byte(r.content("ethtool.json")), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *recorded) put(name, text string) {
	r.t.Helper()
	path := r.path("%s", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// content returns a file's text without line end; it must exist.
func (r *recorded) content(name string) string {
	r.t.Helper()
	text, err := r.text("%s", name)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// state has the values of all settings, by their names.
func (r *recorded) state() map[string]string {
	r.t.Helper()
	m, err := r.read([]string{"eth0"})
	if err != nil {
		r.t.Fatal(err)
	}
	state := map[string]string{}
	for _, s := range m.settings {
		state[s.String()] = s.Now
	}
	return state
}

func (r *recorded) GetChannels(string) (ethtool.Channels, error) { return r.Channels, nil }

// SetChannels does as drivers do: queues that remain keep their settings, others are new, and all
// interrupts have other numbers and all CPUs.
func (r *recorded) SetChannels(_ string, c ethtool.Channels) (ethtool.Channels, error) {
	before, after := int(r.Channels.CombinedCount), int(c.CombinedCount)
	for queue := after; queue < before; queue++ {
		for _, direction := range []string{"rx", "tx"} {
			if err := os.RemoveAll(r.path("sys/class/net/eth0/queues/%s-%d", direction, queue)); err != nil {
				return c, err
			}
		}
	}
	for queue := before; queue < after; queue++ {
		r.put(fmt.Sprintf("sys/class/net/eth0/queues/rx-%d/rps_cpus", queue), "0000\n")
		r.put(fmt.Sprintf("sys/class/net/eth0/queues/rx-%d/rps_flow_cnt", queue), "0\n")
		r.put(fmt.Sprintf("sys/class/net/eth0/queues/tx-%d/xps_cpus", queue), "0000\n")
	}
	if err := os.RemoveAll(r.path("sys/class/net/eth0/device/msi_irqs")); err != nil {
		return c, err
	}
	lines := "    CPU0\n"
	for queue := range after {
		number := strconv.Itoa(1000 + after + queue)
		lines += fmt.Sprintf("%s: 0 IR-PCI-MSI eth0-TxRx-%d\n", number, queue)
		r.put("sys/class/net/eth0/device/msi_irqs/"+number, "msix\n")
		r.put("proc/irq/"+number+"/smp_affinity", "ffff\n")
	}
	r.put("proc/interrupts", lines)
	r.Channels = c
	return c, nil
}

func (r *recorded) FeaturesWithState(string) (map[string]ethtool.FeatureState, error) {
	return r.Features, nil
}

func (r *recorded) Change(_ string, features map[string]bool) error {
	for name, on := range features {
		if name == r.failing {
			return fmt.Errorf("%s refused", name)
		}
		state := r.Features[name]
		state.Active = on
		r.Features[name] = state
	}
	return nil
}

// TestInterruptNames has interrupts as drivers name them.
func TestInterruptNames(t *testing.T) {
	for name, queue := range map[string]string{
		"eth0-TxRx-3":                 "3",
		"ice-enp65s0f0-TxRx-63":       "63",
		"eth0-rx-1":                   "1",
		"eth0-Tx-Rx-7":                "7",
		"mlx5_comp12@pci:0000:3b:0.0": "12",
		"virtio3-input.0":             "0",
		"ens192-rxtx-2":               "2",
		"eth0-tx-0":                   "",
		"virtio3-output.0":            "",
		"virtio3-config":              "",
		"mlx5_async0@pci:0000:3b:0.0": "",
		"enp3s0":                      "",
		"i40e-0000:01:00.0:misc":      "",
	} {
		match := append(received.FindStringSubmatch(name), "", "")
		if match[1] != queue {
			t.Errorf("%s: queue %q, want %q", name, match[1], queue)
		}
	}
}

// TestInterruptsByName has a device whose bus doesn't list its interrupts, and one that is a part
// of another device.
func TestInterruptsByName(t *testing.T) {
	r := openRecorded(t, "bcm5720")
	if err := os.RemoveAll(r.path("sys/class/net/eth0/device")); err != nil {
		t.Fatal(err)
	}
	text := r.content("proc/interrupts") + "\n  90: 0 PCI-MSI eth01-rx-9\n  91: 0 PCI-MSI virtio3-input.0\n"
	r.put("proc/interrupts", text)
	count := func() int {
		m, err := r.read([]string{"eth0"})
		if err != nil {
			t.Fatal(err)
		}
		return m.devices["eth0"].interrupts
	}
	if n := count(); n != 4 {
		t.Errorf("%d interrupts by name, want 4", n)
	}
	r.put("sys/devices/pci/msi_irqs/91", "msix\n")
	r.put("sys/devices/pci/virtio3/vendor", "0x1af4\n")
	r.put("proc/irq/91/smp_affinity", "ffff\n")
	if err := os.Symlink(r.path("sys/devices/pci/virtio3"), r.path("sys/class/net/eth0/device")); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 1 {
		t.Errorf("%d interrupts of the PCI device, want 1", n)
	}
}

func TestNoInterface(t *testing.T) {
	r := openRecorded(t, "bcm5720")
	for _, name := range []string{"eth9", "../net/eth0", "."} {
		_, err := r.Show(XDP, []string{name})
		if err == nil || !strings.HasPrefix(err.Error(), "interface "+name+": no such interface") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func ethtoolChannels(combined uint32) ethtool.Channels {
	return ethtool.Channels{MaxCombined: 64, CombinedCount: combined}
}
