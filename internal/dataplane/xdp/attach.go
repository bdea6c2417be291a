// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/handover"
	"fairlead.io/fairlead/internal/dataplane/xdp/hook"
	"fairlead.io/fairlead/internal/dataplane/xdp/probe"
)

// Mode is where in the kernel the program runs.
type Mode = hook.Mode

// Attachment is the program on one interface.
type Attachment struct {
	Interface string `json:"interface"`
	// Mode is hook.Native or hook.Generic.
	Mode Mode `json:"mode"`
	// Reason says why the mode is not native although it might be.
	Reason string `json:"reason,omitempty"`
	// Adopted is set if an earlier agent attached a program here and this one
	// replaced it without a gap.
	Adopted bool `json:"adopted"`

	link link.Link
}

// attach puts the program on an interface, with its link pinned in dir. Where a
// pinned link is already there its program is replaced: one atomic step, so not
// a packet sees an interface without a balancer.
func attach(program *ebpf.Program, dir, name string, mode Mode) (Attachment, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return Attachment{}, fmt.Errorf("interface %s: %w", name, err)
	}
	pins, err := linkPins(dir)
	if err != nil {
		return Attachment{}, err
	}
	present := filepath.Join(dir, linkPin(name))
	for _, pin := range pins {
		if linkInterface(pin) != name {
			continue
		}
		a, err := adopt(program, pin, dev, mode)
		if err == nil && a.link != nil && pin != present {
			err = a.link.Pin(present)
		}
		if err != nil || a.link != nil {
			return a, err
		}
	}
	h, err := hook.Attach(program, dev, mode)
	if err != nil {
		return Attachment{}, err
	}
	a := Attachment{Interface: name, Mode: h.Mode, Reason: h.Reason, link: h.Link}
	if err := a.link.Pin(present); err != nil {
		return Attachment{}, errors.Join(fmt.Errorf("interface %s: pin link: %w", name, err), a.link.Close())
	}
	return a, nil
}

// adopt takes over the pinned link of an interface. The result has no link if
// there is none, or if it belongs to an interface that is gone or to another
// mode; then it is removed.
func adopt(program *ebpf.Program, pin string, dev *net.Interface, mode Mode) (Attachment, error) {
	old, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return Attachment{}, nil
	}
	if err != nil {
		return Attachment{}, fmt.Errorf("interface %s: pinned link: %w", dev.Name, err)
	}
	now, err := currentMode(old, dev)
	if err != nil || (mode != hook.Auto && mode != now) {
		return Attachment{}, detach(old)
	}
	if err := old.Update(program); err != nil {
		return Attachment{}, errors.Join(fmt.Errorf("interface %s: replace program: %w", dev.Name, err), old.Close())
	}
	return Attachment{Interface: dev.Name, Mode: now, Adopted: true, link: old}, nil
}

// currentMode is the mode of a link that is attached to dev; an error if it is
// not.
func currentMode(l link.Link, dev *net.Interface) (Mode, error) {
	info, err := l.Info()
	if err != nil {
		return "", err
	}
	if x := info.XDP(); x == nil || int(x.Ifindex) != dev.Index {
		return "", fmt.Errorf("interface %s: the pinned link is not attached to it", dev.Name)
	}
	attrs, err := netlink.LinkByIndex(dev.Index)
	if err != nil {
		return "", err
	}
	if x := attrs.Attrs().Xdp; x != nil && x.AttachMode == nl.XDP_ATTACHED_SKB {
		return hook.Generic, nil
	}
	return hook.Native, nil
}

// detach takes a pinned program off its interface, which may be gone, and
// returns when it is off: the kernel does what follows an unpinning later.
func detach(l link.Link) error {
	return errors.Join(l.Detach(), l.Unpin(), l.Close())
}

// detachOthers takes the program off all interfaces that are not listed.
func detachOthers(dir string, interfaces []string) error {
	pins, err := linkPins(dir)
	if err != nil {
		return err
	}
	for _, pin := range pins {
		if slices.Contains(interfaces, linkInterface(pin)) {
			continue
		}
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			return fmt.Errorf("pinned link %s: %w", pin, err)
		}
		if err := detach(l); err != nil {
			return fmt.Errorf("pinned link %s: %w", pin, err)
		}
	}
	return nil
}

// Remove detaches and unpins everything that agents left in a pin directory;
// packets are no longer balanced. Nothing else in the directory is touched, and
// one that is in no BPF file system is refused. No agent may be running.
func Remove(dir string) error {
	if !inBPF(dir) {
		return fmt.Errorf("pin directory %s is not in a BPF file system", dir)
	}
	if err := errors.Join(detachOthers(dir, nil), handover.Remove(dir)); err != nil {
		return err
	}
	if err := removeOtherLayouts(dir, ""); err != nil {
		return fmt.Errorf("pin directory: %w", err)
	}
	if err := probe.Remove(); err != nil {
		return err
	}
	// Not removed if it holds something else, or was never made.
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("pin directory: %w", err)
	}
	return nil
}
