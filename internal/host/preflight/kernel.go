// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel wants a kernel that loads the program of the XDP data plane. It can't be tried without
// capabilities, whose check fails then, or if a container's seccomp profile refuses bpf().
func kernel(facts Facts, n Needs) Finding {
	f := Finding{Check: "kernel", Result: OK, Found: facts.Kernel, Needed: "a kernel that runs Fairlead's XDP program, such as Linux 6.1"}
	capable := capabilities(facts, n).Result == OK
	switch err := facts.ProgramErr; {
	case err == nil:
	case capable && errors.Is(err, unix.EPERM):
		f.Result, f.Found = Fail, f.Found+"; the system call bpf is refused in spite of CAP_BPF"
		f.Fix = "permit it in the container's seccomp profile (--security-opt seccomp=unconfined of podman and docker run)"
	case !capable && errors.Is(err, fs.ErrPermission):
		f.Result, f.Found, f.Fix = Warn, f.Found+"; may not be tried", "run it with the capabilities of an agent"
	default:
		f.Result, f.Found, f.Fix = Fail, f.Found+": "+err.Error(), "boot a newer kernel"
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
