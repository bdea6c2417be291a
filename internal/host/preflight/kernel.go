// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel wants the features that programs use. Where they can't be tried, capabilities are
// missing, and the check of those fails, or a container's seccomp profile refuses bpf().
func kernel(facts Facts, n Needs) Finding {
	f := Finding{Check: "kernel", Result: OK, Found: facts.Kernel}
	var needed, missing, untried []string
	for _, feature := range facts.Features {
		if feature.OnlyQUIC && !n.QUIC {
			continue
		}
		needed = append(needed, feature.Name)
		switch {
		case feature.Err == nil:
		case errors.Is(feature.Err, unix.EPERM):
			untried = append(untried, feature.Name)
		default:
			missing = append(missing, feature.Name)
		}
	}
	f.Needed = strings.Join(needed, ", ")
	switch {
	case len(missing) > 0:
		f.Result, f.Found, f.Fix = Fail, f.Found+" without "+strings.Join(missing, ", "), "boot a newer kernel"
	case len(untried) > 0 && facts.has(unix.CAP_BPF) && facts.has(unix.CAP_NET_ADMIN):
		f.Result, f.Found = Fail, f.Found+"; the system call bpf is refused in spite of CAP_BPF: "+strings.Join(untried, ", ")
		f.Fix = "permit it in the container's seccomp profile (--security-opt seccomp=unconfined of podman and docker run)"
	case len(untried) > 0:
		f.Result, f.Found, f.Fix = Warn, f.Found+"; may not be tried: "+strings.Join(untried, ", "), "run it with the capabilities of an agent"
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

// forwarding warns of a family that isn't forwarded: packets for pods are dropped then.
func forwarding(not []string) Finding {
	f := Finding{Check: "forwarding", Result: OK, Found: "on", Needed: "on for the families of pods (dataplane.filterPods)"}
	if len(not) > 0 {
		f.Result, f.Found = Warn, "off: "+strings.Join(not, ", ")
		f.Fix = "sysctl -w " + strings.Join(not, "=1 ") + "=1"
	}
	return f
}

// passwords wants TCP MD5 signatures (RFC 2385).
func passwords(err error) Finding {
	f := Finding{Check: "tcp md5", Result: OK, Found: "there", Needed: "TCP_MD5SIG, for passwords of BGP sessions"}
	if err != nil {
		f.Result, f.Found = Fail, "not in this kernel: "+err.Error()
		f.Fix = "use a kernel with CONFIG_TCP_MD5SIG=y, or sessions without password"
	}
	return f
}
