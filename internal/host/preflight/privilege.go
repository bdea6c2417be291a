// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"strings"

	"golang.org/x/sys/unix"
)

// has reports whether the process has a capability (unix.CAP_*).
func (f Facts) has(capability int) bool { return f.Capabilities&(1<<capability) != 0 }

// capabilities wants the capabilities for loading and attaching XDP programs since
// 5.8: before that, and still today, CAP_SYS_ADMIN includes the two of BPF. IPVS
// alone needs the first.
func capabilities(own Facts, n Needs) Finding {
	f := Finding{
		Check: "capabilities", Result: OK,
		Needed: "CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON (or CAP_SYS_ADMIN for the last two)",
	}
	wanted := []struct {
		name       string
		capability int
		instead    bool // CAP_SYS_ADMIN is taken as well
	}{
		{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, false},
		{"CAP_BPF", unix.CAP_BPF, true},
		{"CAP_PERFMON", unix.CAP_PERFMON, true},
	}
	if n.IPVS == Required {
		wanted, f.Needed = wanted[:1], "CAP_NET_ADMIN"
	}
	var held, missing []string
	for _, c := range wanted {
		switch {
		case own.has(c.capability):
			held = append(held, c.name)
		case c.instead && own.has(unix.CAP_SYS_ADMIN):
			held = append(held, "CAP_SYS_ADMIN for "+c.name)
		default:
			missing = append(missing, c.name)
		}
	}
	f.Found = strings.Join(held, ", ")
	if len(missing) > 0 {
		f.Result = Fail
		f.Found = "missing: " + strings.Join(missing, ", ")
		f.Fix = "run as root, or give them: AmbientCapabilities= of systemd, capabilities.add of a container"
	}
	return f
}

func mounted(facts Facts) Finding {
	f := Finding{
		Check: "bpffs", Result: OK, Found: "mounted at or above " + facts.BPFFS.Dir,
		Needed: "a BPF file system, in which the data plane outlives the agent",
	}
	switch {
	case facts.BPFFS.Mounted:
	case !facts.BPFFS.Known:
		f.Result, f.Found, f.Fix = Fail, "unknown to the kernel", "use a kernel with CONFIG_BPF_SYSCALL=y"
	case facts.has(unix.CAP_SYS_ADMIN):
		f.Found = "not mounted at " + facts.BPFFS.Dir + "; the agent will mount it"
	default:
		f.Result = Fail
		f.Found = "not mounted at " + facts.BPFFS.Dir + ", and mounting needs CAP_SYS_ADMIN"
		f.Fix = "mount -t bpf bpf /sys/fs/bpf (in a container: mount the host's /sys/fs/bpf)"
	}
	return f
}
