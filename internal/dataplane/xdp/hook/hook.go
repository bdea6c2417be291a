// SPDX-License-Identifier: Apache-2.0

// Package hook attaches Fairlead's XDP programs to interfaces: in the driver
// where it can, else in the network stack, and says why.
package hook

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Mode is where in the kernel a program runs.
type Mode string

// The modes. Auto is native where the driver can, else generic.
const (
	Auto    Mode = "auto"
	Native  Mode = "native"  // in the driver, before a socket buffer is made
	Generic Mode = "generic" // in the network stack: works everywhere, slower
)

// Hook is a program on an interface; closing Link takes it off unless the link
// is pinned.
type Hook struct {
	Link link.Link
	// Mode is Native or Generic.
	Mode Mode
	// Reason says why the mode is not native although it might be.
	Reason string
}

// Attach puts the program on an interface that has none.
func Attach(program *ebpf.Program, dev *net.Interface, mode Mode) (Hook, error) {
	h := Hook{Mode: Native}
	var err error
	if mode != Generic {
		h.Link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: dev.Index, Flags: link.XDPDriverMode})
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
			return Hook{}, fmt.Errorf("interface %s: another XDP program is attached to it: %w", dev.Name, err)
		case mode == Native:
			return Hook{}, fmt.Errorf("interface %s: native XDP: %w", dev.Name, err)
		}
		h.Reason = fmt.Sprintf("native XDP refused by the driver: %v", err)
	}
	h.Mode = Generic
	h.Link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: dev.Index, Flags: link.XDPGenericMode})
	if err != nil {
		return Hook{}, fmt.Errorf("interface %s: generic XDP: %w", dev.Name, err)
	}
	return h, nil
}
