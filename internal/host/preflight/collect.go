// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/host/bpffs"
)

// Collect reads the facts about this machine, this process and the named
// interfaces of the current network namespace. Pins is the directory in which
// an agent would pin; it need not exist.
func Collect(interfaces []string, pins string) (Facts, error) {
	f := Facts{BPFFS: BPFFS{Dir: pins}}
	var err error
	if f.Kernel, err = KernelRelease(); err != nil {
		return f, fmt.Errorf("kernel release: %w", err)
	}
	if f.Capabilities, err = effectiveCapabilities(); err != nil {
		return f, fmt.Errorf("capabilities: %w", err)
	}
	registered, err := hasIPVS()
	if err != nil {
		return f, err
	}
	if f.Modules, err = collectModules("/", f.Kernel, registered); err != nil {
		return f, fmt.Errorf("modules: %w", err)
	}
	const sysctl = "/proc/sys/net/ipv4/ip_forward"
	if f.SysctlErr = unix.Access(sysctl, unix.W_OK); errors.Is(f.SysctlErr, unix.EROFS) && unix.Access("/host"+sysctl, unix.W_OK) == nil {
		f.SysctlErr = nil // a container with the node's, like the chart's
	}
	f.NotForwarding, f.MD5Err = NotForwarding(), tcpMD5()
	if f.BPFFS.Mounted, err = bpffs.In(pins); err != nil {
		return f, fmt.Errorf("bpffs at %s: %w", pins, err)
	}
	types, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return f, fmt.Errorf("bpffs: %w", err)
	}
	f.BPFFS.Known = bytes.Contains(types, []byte("\tbpf\n"))
	_, missing := os.Stat("/sys/kernel/btf/vmlinux")
	f.BTF = missing == nil
	// Root of a user namespace may not read it: that is a finding, no error.
	if text, err := os.ReadFile("/proc/sys/net/core/bpf_jit_enable"); err == nil {
		f.JIT = strings.TrimSpace(string(text))
	}
	f.Interfaces, err = collectInterfaces(interfaces)
	return f, err
}

// NotForwarding returns the settings of families that the kernel doesn't forward, such as
// "net.ipv4.ip_forward". A family that it doesn't have counts.
func NotForwarding() (settings []string) {
	for _, setting := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		text, _ := os.ReadFile("/proc/sys/" + strings.ReplaceAll(setting, ".", "/"))
		if strings.TrimSpace(string(text)) != "1" {
			settings = append(settings, setting)
		}
	}
	return settings
}

// KernelRelease is the running kernel's, for example "6.1.0-18-amd64".
func KernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// effectiveCapabilities returns this process's capabilities, a bit each.
func effectiveCapabilities() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // 32 capabilities each
	err := unix.Capget(&header, &data[0])
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), err
}

// tcpMD5 returns why a socket can't have a password.
func tcpMD5() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	sig := &unix.TCPMD5Sig{Keylen: 1}
	sig.Addr.Family = unix.AF_INET
	return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, sig)
}
