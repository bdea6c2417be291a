// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
)

// release is the part of a kernel's version that decides about features.
type release struct{ major, minor int }

// Kernel versions that matter. XDP links came with 5.9, accounting of BPF
// memory by cgroup instead of RLIMIT_MEMLOCK with 5.11, BPF's atomic
// operations with 5.12; 5.15 is the oldest long-term kernel that has them all.
var (
	minimum        = release{5, 15}
	memoryByCgroup = release{5, 11}
	reportsXDP     = release{6, 3}
)

// parseRelease reads the first two numbers of "6.1.0-18-amd64".
func parseRelease(text string) (release, error) {
	var r release
	if _, err := fmt.Sscanf(text, "%d.%d", &r.major, &r.minor); err != nil {
		return r, fmt.Errorf("kernel release %q: %w", text, err)
	}
	return r, nil
}

func (r release) before(o release) bool {
	return cmp.Or(cmp.Compare(r.major, o.major), cmp.Compare(r.minor, o.minor)) < 0
}

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func kernel(text string) Finding {
	f := Finding{
		Check: "kernel", Result: OK, Found: text,
		Needed: minimum.String() + " or newer (XDP links 5.9, BPF memory by cgroup 5.11, BPF atomics 5.12, long-term 5.15)",
	}
	r, err := parseRelease(text)
	switch {
	case err != nil:
		f.Result, f.Fix = Warn, "check the version by hand: it can't be read from the release"
	case r.before(minimum):
		f.Result, f.Fix = Fail, "boot a newer kernel"
	case r.before(reportsXDP):
		f.Fix = "nothing; from " + reportsXDP.String() + " on the kernel also reports what an interface's XDP can do"
	}
	return f
}

func btf(there bool) Finding {
	f := Finding{
		Check: "btf", Result: OK, Found: "/sys/kernel/btf/vmlinux",
		Needed: "optional: Fairlead's programs carry their own types; tools such as bpftool show more with it",
	}
	if !there {
		f.Result, f.Found = Warn, "no /sys/kernel/btf/vmlinux"
		f.Fix = "use a kernel with CONFIG_DEBUG_INFO_BTF=y"
	}
	return f
}

func jit(enabled string) Finding {
	f := Finding{Check: "jit", Result: OK, Found: "net.core.bpf_jit_enable = " + enabled, Needed: "1: programs run as machine code"}
	switch enabled {
	case "1":
	case "2":
		f.Result, f.Fix = Warn, "sysctl -w net.core.bpf_jit_enable=1: 2 writes every program to the kernel's log"
	case "":
		// It is there in the first network namespace only, and for its root.
		f.Result, f.Found = Warn, "net.core.bpf_jit_enable can't be read here"
		f.Fix = "look as root, outside of containers and network namespaces"
	default:
		f.Result, f.Fix = Warn, "sysctl -w net.core.bpf_jit_enable=1: interpreted programs are several times slower"
	}
	return f
}
