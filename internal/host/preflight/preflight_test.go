// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// good are facts with which nothing is wrong.
func good() Facts {
	features := uint64(xdpBasic | xdpRedirect)
	return Facts{
		Kernel: "6.12.5-amd64", BTF: true, JIT: "1",
		Modules: Modules{OnRequest: true, IPVSAlias: true, States: map[string]ModuleState{
			"ip_vs": ModuleLoaded, "nf_tables": ModuleLoaded, "ip_vs_mh": ModuleLoaded, "ip_vs_lc": ModuleAvailable,
		}},
		Capabilities: 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON,
		BPFFS:        BPFFS{Dir: "/sys/fs/bpf/fairlead/lb1", Mounted: true, Known: true},
		Interfaces: []Interface{{
			Name: "eth0", Exists: true, Up: true, Driver: "mlx5_core", MTU: 1500, XDPFeatures: &features,
		}},
	}
}

func TestCheck(t *testing.T) {
	none, basic := uint64(0), uint64(xdpBasic)
	tests := []struct {
		name   string
		change func(*Facts)
		needs  Needs
		// want are the findings that are not ok, as "result check: found".
		want []string
	}{
		{name: "good"},
		{name: "good with VLANs in native mode", needs: Needs{VLAN: true, Native: true}},
		{
			name:   "old kernel",
			change: func(f *Facts) { f.ProgramErr = unix.EINVAL },
			want:   []string{"fail kernel: 6.12.5-amd64: invalid argument"},
		},
		{
			name:   "kernel whose verifier refuses access",
			change: func(f *Facts) { f.ProgramErr = unix.EACCES },
			want:   []string{"fail kernel: 6.12.5-amd64: permission denied"},
		},
		{
			name:   "program not tried",
			change: func(f *Facts) { f.ProgramErr, f.Capabilities = unix.EPERM, 0 },
			want: []string{
				"warn kernel: 6.12.5-amd64; may not be tried",
				"fail capabilities: missing: CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON",
			},
		},
		{
			name:   "program refused by a seccomp profile",
			change: func(f *Facts) { f.ProgramErr = unix.EPERM },
			want:   []string{"fail kernel: 6.12.5-amd64; the system call bpf is refused in spite of CAP_BPF"},
		},
		{name: "ipvs", needs: Needs{IPVS: Required, Schedulers: []string{"maglev", "lc"}}},
		{
			name: "ipvs needs no BPF and no XDP",
			change: func(f *Facts) {
				f.Capabilities, f.BPFFS, f.Interfaces[0].XDPFeatures = 1<<unix.CAP_NET_ADMIN, BPFFS{}, &none
			},
			needs: Needs{IPVS: Required},
		},
		{
			name:   "ipvs not loaded",
			change: func(f *Facts) { f.Modules.States["ip_vs"] = ModuleAvailable },
			needs:  Needs{IPVS: Required},
		},
		{
			name:   "ipvs before 5.16 not loaded",
			change: func(f *Facts) { f.Modules.States["ip_vs"] = ModuleAvailable; f.Modules.IPVSAlias = false },
			needs:  Needs{IPVS: Required},
			want:   []string{"fail ipvs: module ip_vs, not loaded"},
		},
		{
			name:   "ipvs where the kernel loads no modules",
			change: func(f *Facts) { f.Modules.States["ip_vs"] = ModuleAvailable; f.Modules.OnRequest = false },
			needs:  Needs{IPVS: Required, Schedulers: []string{"maglev", "lc"}},
			want:   []string{"fail ipvs: module ip_vs, not loaded", "fail ipvs: ip_vs_lc: not loaded"},
		},
		{
			name: "ipvs unseen",
			change: func(f *Facts) {
				f.Modules.States = map[string]ModuleState{"ip_vs": ModuleUnseen, "nf_tables": ModuleLoaded, "ip_vs_mh": ModuleUnseen}
			},
			needs: Needs{IPVS: Required, Schedulers: []string{"maglev", "maglev"}},
			want: []string{
				"warn ipvs: not loaded; /lib/modules/6.12.5-amd64 can't be seen here",
				"warn ipvs: ip_vs_mh: not loaded; /lib/modules/6.12.5-amd64 can't be seen here",
			},
		},
		{
			name:   "no ipvs",
			change: func(f *Facts) { f.Modules.States = nil },
			needs:  Needs{IPVS: Required, Schedulers: []string{"maglev", "maglev"}},
			want:   []string{"fail ipvs: this kernel has no IPVS"},
		},
		{
			name:   "no ipvs, optional",
			change: func(f *Facts) { f.Modules.States = nil },
			needs:  Needs{IPVS: Optional, Schedulers: []string{"maglev", "maglev"}},
		},
		{
			name:   "no ipvs, for some services",
			change: func(f *Facts) { f.Modules.States = nil },
			needs:  Needs{IPVS: Partial, Schedulers: []string{"rr"}},
			want:   []string{"fail ipvs: this kernel has no IPVS"},
		},
		{
			name:   "no scheduler and no default one, for some services",
			change: func(f *Facts) { delete(f.Modules.States, "ip_vs_mh") },
			needs:  Needs{IPVS: Partial, Schedulers: []string{"lc", "rr"}},
			want:   []string{"fail ipvs: ip_vs_rr: this kernel has no such module"},
		},
		{
			name:   "no passwords",
			change: func(f *Facts) { f.MD5Err = unix.ENOPROTOOPT },
			needs:  Needs{Passwords: true},
			want:   []string{"fail tcp md5: not in this kernel: protocol not available"},
		},
		{name: "no passwords, not needed", change: func(f *Facts) { f.MD5Err = unix.ENOPROTOOPT }},
		{
			name: "VIP in the interface's network",
			change: func(f *Facts) {
				f.Interfaces[0].Networks = []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("10.9.0.1/32")}
			},
			needs: Needs{VIPs: []netip.Addr{netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.0.2.50"), netip.MustParseAddr("10.9.0.1")}},
			want:  []string{"warn eth0 vips: 10.0.2.50 is in 10.0.2.0/24, whose hosts look for it by ARP or NDP, not by a route"},
		},
		{
			name:  "no scheduler",
			needs: Needs{IPVS: Required, Schedulers: []string{"wlc"}},
			want:  []string{"fail ipvs: ip_vs_wlc: this kernel has no such module"},
		},
		{name: "no scheduler, optional", needs: Needs{IPVS: Optional, Schedulers: []string{"wlc"}}},
		{
			name:   "read-only sysctls",
			change: func(f *Facts) { f.SysctlErr = unix.EROFS },
			needs:  Needs{IPVS: Required},
			want:   []string{"warn sysctls: /proc/sys is read-only: nat needs net.ipv4.vs.conntrack=1 there, and connections to dead backends hang until they expire"},
		},
		{name: "read-only sysctls, without ipvs", change: func(f *Facts) { f.SysctlErr = unix.EROFS }, needs: Needs{IPVS: Optional}},
		{
			name:   "no BTF, no JIT",
			change: func(f *Facts) { f.BTF = false; f.JIT = "0" },
			want:   []string{"warn btf: no /sys/kernel/btf/vmlinux", "warn jit: net.core.bpf_jit_enable = 0"},
		},
		{
			name:   "JIT unreadable",
			change: func(f *Facts) { f.JIT = "" },
			want:   []string{"warn jit: net.core.bpf_jit_enable can't be read here"},
		},
		{
			name:   "JIT debugging",
			change: func(f *Facts) { f.JIT = "2" },
			want:   []string{"warn jit: net.core.bpf_jit_enable = 2"},
		},
		{
			name:   "no capabilities",
			change: func(f *Facts) { f.Capabilities = 0 },
			want:   []string{"fail capabilities: missing: CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON"},
		},
		{
			name:   "CAP_SYS_ADMIN instead of BPF's",
			change: func(f *Facts) { f.Capabilities = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN },
		},
		{
			name:   "bpffs not mounted, may mount",
			change: func(f *Facts) { f.BPFFS.Mounted = false; f.Capabilities |= 1 << unix.CAP_SYS_ADMIN },
		},
		{
			name:   "bpffs not mounted, may not mount",
			change: func(f *Facts) { f.BPFFS.Mounted = false },
			want:   []string{"fail bpffs: not mounted at /sys/fs/bpf/fairlead/lb1, and mounting needs CAP_SYS_ADMIN"},
		},
		{
			name:   "bpffs unknown",
			change: func(f *Facts) { f.BPFFS = BPFFS{} },
			want:   []string{"fail bpffs: unknown to the kernel"},
		},
		{
			name:   "no interface",
			change: func(f *Facts) { f.Interfaces[0] = Interface{Name: "eth7"} },
			want:   []string{"fail eth7 link: no such interface"},
		},
		{
			name:   "interface down",
			change: func(f *Facts) { f.Interfaces[0].Up = false },
			want:   []string{"fail eth0 link: down"},
		},
		{
			name:   "features unknown",
			change: func(f *Facts) { f.Kernel = "6.1.0"; f.Interfaces[0].XDPFeatures = nil },
			want:   []string{"warn eth0 xdp: unknown until attached: kernel 6.1.0 does not report it"},
		},
		{
			name:   "generic only",
			change: func(f *Facts) { f.Interfaces[0].XDPFeatures = &none },
			want:   []string{"warn eth0 xdp: driver mlx5_core has none: generic mode"},
		},
		{
			name:   "generic only, native wanted",
			change: func(f *Facts) { f.Interfaces[0].XDPFeatures = &none },
			needs:  Needs{Native: true},
			want:   []string{"fail eth0 xdp: driver mlx5_core has none: generic mode"},
		},
		{
			name:   "no redirect",
			change: func(f *Facts) { f.Interfaces[0].XDPFeatures = &basic },
			want:   []string{"warn eth0 xdp: native, without redirect: backends must be reached through the same interface"},
		},
		{
			name: "another's program",
			change: func(f *Facts) {
				f.Interfaces[0].Program = &Program{ID: 7, Native: true, Holders: []string{"other (pid 3)"}}
			},
			want: []string{"fail eth0 xdp program: id 7, native, held by other (pid 3)"},
		},
		{
			name: "own program",
			change: func(f *Facts) {
				f.Interfaces[0].Program = &Program{ID: 7, Holders: []string{"fairlead (pid 3)"}, Own: true}
			},
		},
		{
			name:   "program left behind",
			change: func(f *Facts) { f.Interfaces[0].Program = &Program{ID: 7} },
			want:   []string{"warn eth0 xdp program: id 7, generic, held by no process"},
		},
		{
			name:   "jumbo frames",
			change: func(f *Facts) { f.Interfaces[0].MTU = 9000 },
			want:   []string{"warn eth0 mtu: 9000"},
		},
		{
			name:   "jumbo frames, native wanted",
			change: func(f *Facts) { f.Interfaces[0].MTU = 9000 },
			needs:  Needs{Native: true},
			want:   []string{"fail eth0 mtu: 9000"},
		},
		{
			name:   "a driver that takes less",
			change: func(f *Facts) { f.Interfaces[0].MTU = 3400; f.Interfaces[0].Driver = "i40e" },
			want:   []string{"warn eth0 mtu: 3400"},
		},
		{
			name:   "jumbo frames in generic mode",
			change: func(f *Facts) { f.Interfaces[0].MTU = 65536; f.Interfaces[0].XDPFeatures = &none },
			want:   []string{"warn eth0 xdp: driver mlx5_core has none: generic mode"},
		},
		{
			name:   "no forwarding",
			change: func(f *Facts) { f.NotForwarding = []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} },
		},
		{
			name:   "no forwarding, pods filtered",
			change: func(f *Facts) { f.NotForwarding = []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} },
			needs:  Needs{Forwarding: true},
			want:   []string{"warn forwarding: off: net.ipv4.ip_forward, net.ipv6.conf.all.forwarding"},
		},
		{
			name:   "strict filter without probes",
			change: func(f *Facts) { f.Interfaces[0].ReversePath = Strict },
		},
		{
			name:   "strict filter",
			change: func(f *Facts) { f.Interfaces[0].ReversePath = Strict },
			needs:  Needs{Probes: true},
			want:   []string{"warn eth0 rp_filter: strict (1): answers from VIPs whose route leads elsewhere are dropped, and their backends found dead"},
		},
		{
			name:   "loose filter",
			change: func(f *Facts) { f.Interfaces[0].ReversePath = Loose },
			needs:  Needs{Probes: true},
		},
		{
			name:   "hidden VLAN tags that no service needs",
			change: func(f *Facts) { f.Interfaces[0].HidesVLAN = true },
		},
		{
			name:   "hidden VLAN tags",
			change: func(f *Facts) { f.Interfaces[0].HidesVLAN = true },
			needs:  Needs{VLAN: true},
			want:   []string{"warn eth0 vlan tags: taken out by rx-vlan-offload: XDP takes tagged frames for untagged ones"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := good()
			if tt.change != nil {
				tt.change(&facts)
			}
			findings := Check(facts, tt.needs)
			if got := notOK(findings); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			wantFailed := slices.ContainsFunc(tt.want, func(s string) bool { return strings.HasPrefix(s, "fail ") })
			if Failed(findings) != wantFailed {
				t.Errorf("failed %t, want %t", !wantFailed, wantFailed)
			}
			for _, f := range findings {
				if f.Found == "" || f.Needed == "" || (f.Result == Fail && f.Fix == "") || (f.Result == OK && f.Fix != "") {
					t.Errorf("%s: something is unsaid: %+v", f.Check, f)
				}
			}
		})
	}
}

func notOK(findings []Finding) []string {
	var list []string
	for _, f := range findings {
		if f.Result != OK {
			list = append(list, strings.Join(strings.Fields(string(f.Result)+" "+f.Interface+" "+f.Check), " ")+": "+f.Found)
		}
	}
	return list
}

func TestVethHint(t *testing.T) {
	facts := good()
	facts.Interfaces[0].Driver = "veth"
	for _, f := range Check(facts, Needs{}) {
		if hint := strings.Contains(f.Found, "PEER gro on"); hint != (f.Check == "xdp") {
			t.Errorf("%s: hint %t", f.Check, hint)
		}
	}
}

func TestWriteTable(t *testing.T) {
	var out strings.Builder
	findings := []Finding{
		{Check: "kernel", Result: OK, Found: "6.12.5", Needed: "XDP links"},
		{Check: "link", Interface: "eth0", Result: Fail, Found: "down", Needed: "an interface that is up", Fix: "ip link set eth0 up"},
	}
	if err := WriteTable(&out, findings); err != nil {
		t.Fatal(err)
	}
	want := `ok    kernel      6.12.5
fail  eth0: link  down
                    needed: an interface that is up
                    fix: ip link set eth0 up
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestFindingJSON(t *testing.T) {
	got, err := json.Marshal(Finding{Check: "link", Interface: "eth0", Result: Fail, Found: "down", Needed: "up", Fix: "set it up"})
	want := `{"check":"link","interface":"eth0","result":"fail","found":"down","needed":"up","fix":"set it up"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
}
