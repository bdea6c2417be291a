// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.io/fairlead/test/golden"
)

var profiles = []Profile{XDP, Kernel, Server}

// apply applies a profile to eth0 and returns the file with former values.
func (r *recorded) apply(profile Profile) (file string) {
	r.t.Helper()
	file = filepath.Join(r.t.TempDir(), "folder", "undo.json")
	if _, err := r.Apply(profile, []string{"eth0"}, file); err != nil {
		r.t.Fatal(err)
	}
	return file
}

// expect compares files with values.
func (r *recorded) expect(values map[string]string) {
	r.t.Helper()
	for name, want := range values {
		if got := r.content(name); got != want {
			r.t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

const queues = "sys/class/net/eth0/queues/"

// TestBCM5720 has the masks of Takahashi, A Study on Portable Load Balancer for Container
// Clusters, 2.1.6: (RSS, RPS) = (off, on) was the fastest for IPVS at 1 Gbit/s, (on, off) is for
// XDP.
func TestBCM5720(t *testing.T) {
	r := openRecorded(t, "bcm5720")
	r.apply(Kernel)
	for i, rssOn := range []string{"1", "2", "4", "8"} {
		r.expect(map[string]string{
			fmt.Sprintf("proc/irq/%d/smp_affinity", 82+i): "1",
			fmt.Sprintf(queues+"rx-%d/rps_cpus", i):       "fefe",
		})
		defer r.expect(map[string]string{
			fmt.Sprintf("proc/irq/%d/smp_affinity", 82+i): rssOn,
			fmt.Sprintf(queues+"rx-%d/rps_cpus", i):       "0",
		})
	}
	r.expect(map[string]string{"proc/irq/40/smp_affinity": "ffff", "proc/irq/81/smp_affinity": "ffff"})
	r.apply(XDP)
}

// TestX550 has 16 of 64 queues active, as many as CPUs (chapter 7), and VLAN offloads off (Lee et
// al., High-Performance Software Load Balancer for Cloud-Native Architecture, VI.A).
func TestX550(t *testing.T) {
	for _, active := range []uint32{4, 16, 64} {
		r := openRecorded(t, "x550")
		if _, err := r.SetChannels("eth0", ethtoolChannels(active)); err != nil {
			t.Fatal(err)
		}
		r.apply(XDP)
		if r.Channels != ethtoolChannels(16) {
			t.Errorf("%+v of %d, want 16", r.Channels, active)
		}
		state := r.state()
		for queue := range 16 {
			if mask := state[fmt.Sprintf("eth0: irq eth0-TxRx-%d", queue)]; mask != fmt.Sprintf("%x", 1<<queue) {
				t.Errorf("interrupt of queue %d: CPUs %s", queue, mask)
			}
		}
		if vlan := state["eth0: rxvlan"] + state["eth0: txvlan"]; vlan != "offoff" {
			t.Errorf("rxvlan, txvlan: %s", vlan)
		}
		r.apply(Kernel)
		for queue := range 16 {
			r.expect(map[string]string{
				fmt.Sprintf(queues+"rx-%d/rps_cpus", queue): "0000", // RSS uses all CPUs
				fmt.Sprintf(queues+"tx-%d/xps_cpus", queue): fmt.Sprintf("%x", 1<<queue),
			})
		}
	}
}

// TestIxgbevf has the values of Comparison of Networking Solutions for Kubernetes, Setup.
func TestIxgbevf(t *testing.T) {
	r := openRecorded(t, "ixgbevf")
	r.apply(Server)
	r.expect(map[string]string{
		"proc/sys/net/core/rps_sock_flow_entries": "65536",
		queues + "rx-0/rps_cpus":                  "00000000,0003fdfe",
		queues + "rx-1/rps_cpus":                  "00000000,0003fdfe",
		queues + "rx-0/rps_flow_cnt":              "32768",
		queues + "rx-1/rps_flow_cnt":              "32768",
		queues + "tx-0/xps_cpus":                  "00000000,07fc01ff",
		queues + "tx-1/xps_cpus":                  "0000000f,f803fe00",
		"proc/irq/267/smp_affinity":               "f,ffffffff",
	})
	for irq, core := range map[int]string{265: "0", 266: "9"} {
		cpus, err := parseMask(r.content(fmt.Sprintf("proc/irq/%d/smp_affinity", irq)))
		if err != nil || formatList(cpus) != core {
			t.Errorf("irq %d: CPUs %v (%v), want %s", irq, cpus, err, core)
		}
	}
	r.apply(Kernel) // all CPUs of the other cores
	r.expect(map[string]string{queues + "rx-1/rps_cpus": "0000000f,f7fbfdfe"})
	r.put("sys/class/net/eth0/device/numa_node", "1\n")
	r.apply(Kernel) // of this node
	r.expect(map[string]string{queues + "rx-1/rps_cpus": "0000000f,e003f800"})
}

func TestTable(t *testing.T) {
	for name, profile := range map[string]Profile{"bcm5720": Kernel, "x550": XDP, "ixgbevf": Server} {
		r := openRecorded(t, name)
		settings, err := r.Show(profile, []string{"eth0"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range settings {
			settings[i].Now = strings.ReplaceAll(settings[i].Now, r.Root, "")
		}
		var text strings.Builder
		if err := WriteTable(&text, settings); err != nil {
			t.Fatal(err)
		}
		golden.File(t, filepath.Join("testdata", name+"-"+string(profile)+".txt"), text.String())
	}
}

// TestUndo restores the values before each profile, with other numbers of channels, too.
func TestUndo(t *testing.T) {
	for _, name := range []string{"bcm5720", "x550", "x550 with 64", "ixgbevf"} {
		for _, profile := range profiles {
			machine, more, _ := strings.Cut(name, " with ")
			r := openRecorded(t, machine)
			if more != "" {
				if _, err := r.SetChannels("eth0", ethtoolChannels(64)); err != nil {
					t.Fatal(err)
				}
				r.put(queues+"rx-40/rps_cpus", "00f0\n") // the change of channels removes it
			}
			before := r.state()
			file := r.apply(profile)
			if cmp.Equal(before, r.state()) {
				t.Errorf("%s: %s changes nothing", name, profile)
			}
			none := filepath.Join(t.TempDir(), "none")
			if settings, err := r.Apply(profile, []string{"eth0"}, none); err != nil || len(toChange(settings)) > 0 {
				t.Errorf("%s: %s again: %v, %v", name, profile, toChange(settings), err)
			}
			if err := r.Undo(file); err != nil {
				t.Errorf("%s: %s: %v", name, profile, err)
			}
			if diff := cmp.Diff(before, r.state()); diff != "" {
				t.Errorf("%s: %s: -before +after:\n%s", name, profile, diff)
			}
		}
	}
}

// toChange returns the settings that Apply writes.
func toChange(settings []Setting) (names []string) {
	for _, s := range settings {
		if s.Result == Change {
			names = append(names, s.String())
		}
	}
	return names
}

// TestUndoAfterFailure has an offload and an interrupt that can't be written. The settings after
// them are, and all are restored.
func TestUndoAfterFailure(t *testing.T) {
	r := openRecorded(t, "x550")
	r.failing = "tx-vlan-hw-insert"
	// No process may write this file of the kernel, which reads as a mask.
	managed := r.path("proc/irq/103/smp_affinity")
	if err := os.Remove(managed); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/sys/kernel/cap_last_cap", managed); err != nil {
		t.Fatal(err)
	}
	before := r.state()
	file := filepath.Join(t.TempDir(), "undo.json")
	settings, err := r.Apply(XDP, []string{"eth0"}, file)
	want := "eth0: txvlan: off: tx-vlan-hw-insert refused\n" +
		"eth0: irq eth0-TxRx-3: 8: open " + managed + ": permission denied"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if left := fmt.Sprint(toChange(settings)); left != "[eth0: txvlan eth0: irq eth0-TxRx-3]" {
		t.Errorf("still to be changed: %s", left)
	}
	r.expect(map[string]string{"proc/irq/102/smp_affinity": "4", "proc/irq/115/smp_affinity": "8000"})
	if err := r.Undo(file); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, r.state()); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// ignoring is a device that takes values and doesn't use them.
type ignoring struct{ Devices }

func (ignoring) Change(string, map[string]bool) error { return nil }

func TestIgnoredValue(t *testing.T) {
	r := openRecorded(t, "x550")
	r.Devices = ignoring{r}
	_, err := r.Apply(XDP, []string{"eth0"}, filepath.Join(t.TempDir(), "undo.json"))
	if want := "eth0: rxvlan: off: still \"on\"\neth0: txvlan: off: still \"on\""; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestUndoFile(t *testing.T) {
	r := openRecorded(t, "bcm5720")
	file := r.apply(Kernel)
	before := r.state()
	if _, err := r.Apply(XDP, []string{"eth0"}, file); err == nil || err.Error() != "undo file: "+file+" exists" {
		t.Errorf("existing file: %v", err)
	}
	if diff := cmp.Diff(before, r.state()); diff != "" {
		t.Errorf("without a file for former values: -before +after:\n%s", diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.RemoveAll(r.path(queues + "rx-3")); err != nil {
		t.Fatal(err)
	}
	if err := r.Undo(file); err == nil || err.Error() != "eth0: rx-3/rps_cpus: 0000: there is no such setting any more" {
		t.Errorf("missing queue: %v", err)
	}
	if err := r.Undo(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Undo(file); err == nil || !strings.HasPrefix(err.Error(), file+": ") {
		t.Errorf("broken file: %v", err)
	}
}

// TestShowChangesNothing compares all files.
func TestShowChangesNothing(t *testing.T) {
	r := openRecorded(t, "ixgbevf")
	tree := func() map[string]string {
		files := map[string]string{}
		err := filepath.WalkDir(r.Root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			files[path] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	before := tree()
	for _, profile := range profiles {
		if _, err := r.Show(profile, []string{"eth0"}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, tree()); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}
