// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// TestCollect reads the machine that runs the test: its facts can't be foretold,
// except for the loopback interface, and missing facts must be distinguishable.
func TestCollect(t *testing.T) {
	missing := fmt.Sprintf("no%d", os.Getpid())
	facts, err := Collect([]string{"lo", missing}, filepath.Join(t.TempDir(), "not", "there"))
	if err != nil {
		t.Fatal(err)
	}
	if facts.Kernel == "" {
		t.Error("no release of the kernel")
	}
	if facts.BPFFS.Mounted {
		t.Error("a temporary directory is taken for a BPF file system")
	}
	if os.Geteuid() == 0 && facts.Capabilities == 0 {
		t.Error("root without capabilities")
	}
	if len(facts.Interfaces) != 2 {
		t.Fatalf("interfaces %+v, want two", facts.Interfaces)
	}
	lo, none := facts.Interfaces[0], facts.Interfaces[1]
	if !lo.Exists || !lo.Up || lo.MTU == 0 || lo.Program != nil {
		t.Errorf("loopback %+v, want one that is up and has no program", lo)
	}
	if lo.XDPFeatures != nil && *lo.XDPFeatures&xdpBasic != 0 {
		t.Errorf("loopback has native XDP: features %#x", *lo.XDPFeatures)
	}
	if none.Exists {
		t.Errorf("%s is taken for there", missing)
	}
}

// The larger of an interface's own filter and that for all counts, and a loose
// one therefore undoes a strict one.
func TestReversePath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, c := range []struct {
		all, own string
		want     ReversePath
	}{{"0", "0", Off}, {"1", "0", Strict}, {"0", "1", Strict}, {"1", "2", Loose}, {"2", "1", Loose}} {
		for name, value := range map[string]string{"all": c.all, "lo": c.own} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		facts, err := Collect([]string{"lo"}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if got := facts.Interfaces[0].ReversePath; got != c.want {
			t.Errorf("all %s, lo %s: %d, want %d", c.all, c.own, got, c.want)
		}
	}
}

func TestCollectModules(t *testing.T) {
	const (
		builtin = "kernel/net/netfilter/ipvs/ip_vs_rr.ko\n"
		files   = "kernel/net/netfilter/ipvs/ip_vs.ko.xz: kernel/net/netfilter/nf_conntrack.ko.xz\nkernel/net/netfilter/ipvs/ip_vs_mh.ko.xz:\n"
		alias   = "# Aliases\nalias net-pf-16-proto-16-family-IPVS ip_vs\n"
	)
	seen := map[string]string{"lib/modules/6.1/modules.builtin": builtin, "lib/modules/6.1/modules.dep": files, "lib/modules/6.1/modules.alias": alias}
	for name, test := range map[string]struct {
		files      map[string]string
		registered bool
		want       string
	}{
		"nothing":                {nil, false, "map[] on request false, alias false"},
		"built in":               {nil, true, "map[ip_vs:1 ip_vs_lc:3 ip_vs_mh:3 ip_vs_rr:3 ip_vs_sh:3 ip_vs_wlc:3 ip_vs_wrr:3 nf_tables:3] on request false, alias false"},
		"available":              {seen, false, "map[ip_vs:2 ip_vs_mh:2 ip_vs_rr:1] on request false, alias true"},
		"on request":             {map[string]string{"proc/sys/kernel/modprobe": "/sbin/modprobe\n", "proc/sys/kernel/modules_disabled": "0\n"}, false, "map[] on request true, alias false"},
		"disabled":               {map[string]string{"proc/sys/kernel/modprobe": "/sbin/modprobe\n", "proc/sys/kernel/modules_disabled": "1\n"}, false, "map[] on request false, alias false"},
		"loaded, in a container": {map[string]string{"proc/modules": "ip_vs 196608 2 ip_vs_mh, Live 0x0\nip_vs_mh 16384 1 - Live 0x0\n"}, true, "map[ip_vs:1 ip_vs_lc:3 ip_vs_mh:1 ip_vs_rr:3 ip_vs_sh:3 ip_vs_wlc:3 ip_vs_wrr:3 nf_tables:3] on request false, alias false"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range test.files {
				if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := collectModules(root, "6.1", test.registered)
			if got := fmt.Sprintf("%v on request %t, alias %t", m.States, m.OnRequest, m.IPVSAlias); err != nil || got != test.want {
				t.Errorf("got %s (%v), want %s", got, err, test.want)
			}
		})
	}
}
