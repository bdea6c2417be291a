// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Feature is a feature of the kernel's BPF, tried by a program of a few instructions that is
// unloaded at once.
type Feature struct {
	// Name is for people, with the kernel that introduced it.
	Name string
	// OnlyQUIC says that only services with QUIC need it.
	OnlyQUIC bool
	// Err is nil if it works, EPERM if this process may not try it; otherwise it is missing.
	Err error
}

// instruction is struct bpf_insn of linux/bpf.h on a little-endian machine: registers has the
// source in its upper half.
type instruction struct {
	code, registers uint8
	offset          int16
	immediate       int32
}

// Instructions of the trials (RFC 9669).
var (
	// pass returns XDP_PASS.
	pass = []instruction{{code: 0xb7, immediate: 2}, {code: 0x95}}
	// fetchAdd adds to a word of the stack atomically and fetches it: BPF_STX, BPF_ATOMIC, BPF_DW.
	fetchAdd = append([]instruction{
		{code: 0xb7, registers: 1, immediate: 1},
		{code: 0x7a, registers: 10, offset: -8},
		{code: 0xdb, registers: 1<<4 | 10, offset: -8, immediate: 1},
	}, pass...)
	// loadBytes calls bpf_xdp_load_bytes(context, 0, stack, 1).
	loadBytes = append([]instruction{
		{code: 0xb7, registers: 2},
		{code: 0xbf, registers: 10<<4 | 3},
		{code: 0x07, registers: 3, immediate: -8},
		{code: 0xb7, registers: 4, immediate: 1},
		{code: 0x85, immediate: 189},
	}, pass...)
)

// features tries those that programs use.
func features() []Feature {
	return []Feature{
		{Name: "XDP links (5.9)", Err: tryLink()},
		{Name: "BPF atomics (5.12)", Err: tryProgram(fetchAdd)},
		{Name: "bpf_xdp_load_bytes (5.18)", OnlyQUIC: true, Err: tryProgram(loadBytes)},
	}
}

// bpf is bpf(2) with the attributes of a command; it returns a file descriptor.
func bpf[T any](command uintptr, attributes *T) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(attributes)), unsafe.Sizeof(*attributes))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// loadProgram loads an XDP program.
func loadProgram(code []instruction) (int, error) {
	license := []byte("GPL\x00")
	attributes := struct {
		kind, count   uint32
		code, license uint64
	}{
		unix.BPF_PROG_TYPE_XDP, uint32(len(code)),
		uint64(uintptr(unsafe.Pointer(&code[0]))), uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, err := bpf(unix.BPF_PROG_LOAD, &attributes)
	runtime.KeepAlive(code)
	runtime.KeepAlive(license)
	return fd, err
}

func tryProgram(code []instruction) error {
	fd, err := loadProgram(code)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// tryLink creates an XDP link in native mode at the loopback interface, whose driver has none:
// a kernel with such links rejects the mode (EOPNOTSUPP), one without them the request.
func tryLink() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	program, err := loadProgram(pass)
	if err != nil {
		return err
	}
	defer unix.Close(program)
	attributes := struct{ program, index, attach, flags uint32 }{uint32(program), uint32(lo.Index), unix.BPF_XDP, unix.XDP_FLAGS_DRV_MODE}
	link, err := bpf(unix.BPF_LINK_CREATE, &attributes)
	switch {
	case err == nil:
		return unix.Close(link) // which detaches it
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM):
		return err
	}
	return nil
}

// memlockCounts reports whether maps count for RLIMIT_MEMLOCK, as before 5.11: with a limit of 0
// one can't be made. Where none can be made at all, it doesn't matter.
func memlockCounts() (bool, error) {
	allowed := func() bool {
		attributes := struct{ kind, key, value, entries uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
		fd, err := bpf(unix.BPF_MAP_CREATE, &attributes)
		return err == nil && unix.Close(fd) == nil
	}
	var before unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, nil, &before); err != nil {
		return false, err
	}
	if !allowed() {
		return false, nil
	}
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Max: before.Max}, nil); err != nil {
		return false, err
	}
	counts := !allowed()
	return counts, unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &before, nil)
}
