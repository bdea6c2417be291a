// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/host/bpffs"
)

// Attachment is the program on one interface.
type Attachment struct {
	Interface string `json:"interface"`
	// Mode is Native or Generic.
	Mode Mode `json:"mode"`
	// Reason is why the mode is not native although it might be.
	Reason string `json:"reason,omitempty"`
	// Adopted is set if an earlier agent attached a program here and this one
	// replaced it without a gap.
	Adopted bool `json:"adopted"`

	link link.Link
}

// Close takes the program off the interface, if there is one, unless the link is pinned.
func (a Attachment) Close() error {
	if a.link == nil {
		return nil
	}
	return a.link.Close()
}

// live reports whether the link is attached to the interface that has the name now.
func (a Attachment) live() bool {
	info, err := a.link.Info()
	if err != nil || info.XDP() == nil {
		return false
	}
	dev, err := netlink.LinkByName(a.Interface)
	return err == nil && dev.Attrs().Index == int(info.XDP().Ifindex)
}

// interfaceExists reports whether there is an interface of that name.
func interfaceExists(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}

// attach puts the program on an interface, with its link pinned in dir. Where a
// pinned link is already there its program is replaced: one atomic step, so not
// a packet sees an interface without a balancer.
func attach(program *ebpf.Program, dir, name string, mode Mode) (Attachment, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return Attachment{}, fmt.Errorf("interface %s: %w", name, err)
	}
	present := filepath.Join(dir, LinkPin(name))
	for _, pin := range LinkPins(dir) {
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
	a, err := Attach(program, dev, mode)
	if err != nil {
		return Attachment{}, err
	}
	if err := a.link.Pin(present); err != nil {
		return Attachment{}, errors.Join(fmt.Errorf("interface %s: pin link %s: %w", name, present, err), a.Close())
	}
	return a, nil
}

// adopt takes over the pinned link of an interface. The result has no link if
// there is none, or if it belongs to a removed interface or to another mode; then
// it is removed.
func adopt(program *ebpf.Program, pin string, dev *net.Interface, mode Mode) (Attachment, error) {
	old, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return Attachment{}, nil
	}
	if err != nil {
		return Attachment{}, fmt.Errorf("interface %s: pinned link: %w", dev.Name, err)
	}
	now, err := currentMode(old, dev)
	if err != nil || (mode != Auto && mode != now) {
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
		return Generic, nil
	}
	return Native, nil
}

// runningFeatures reads the features of the program behind a pinned link from
// the program's name; none if the name has another form.
func runningFeatures(pin string) (Features, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return 0, fmt.Errorf("pinned link %s: %w", pin, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("pinned link %s: %w", pin, err)
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return 0, nil // the interface was removed, and the program with it
	}
	defer program.Close()
	about, err := program.Info()
	if err != nil {
		return 0, fmt.Errorf("pinned link %s: %w", pin, err)
	}
	var f Features
	if _, err := fmt.Sscanf(about.Name, programName, &f); err != nil {
		return 0, nil // another layout's
	}
	return f, nil
}

// detach detaches a pinned program from its interface, which may have been removed.
// Unpinning alone would detach it later.
func detach(l link.Link) error {
	return errors.Join(l.Detach(), l.Unpin(), l.Close())
}

// DetachOthers takes the program off all interfaces that are not listed.
func DetachOthers(dir string, interfaces []string) error {
	for _, pin := range LinkPins(dir) {
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

// LinkPins finds the pinned links of an instance: links of agents before the second
// layout lie with their tables.
func LinkPins(dir string) (pins []string) {
	for _, pattern := range []string{linkPrefix + "*", "v*/" + linkPrefix + "*"} {
		found, _ := fs.Glob(os.DirFS(dir), pattern) // the patterns are valid
		for _, name := range found {
			pins = append(pins, filepath.Join(dir, name))
		}
	}
	return pins
}

const linkPrefix = "link_"

// LinkPin is the name of the pinned link of an interface.
func LinkPin(name string) string { return linkPrefix + bpffs.FileName(name) }

// linkInterface is the interface of a pinned link.
func linkInterface(pin string) string {
	return bpffs.NameOf(strings.TrimPrefix(filepath.Base(pin), linkPrefix))
}

// Mode is where in the kernel a program runs.
type Mode string

// The modes. Auto is native where the driver can, else generic.
const (
	Auto    Mode = "auto"
	Native  Mode = "native"  // in the driver, before a socket buffer is made
	Generic Mode = "generic" // in the network stack: works everywhere, slower
)

// Attach puts the program on an interface that has none.
func Attach(program *ebpf.Program, dev *net.Interface, mode Mode) (Attachment, error) {
	a := Attachment{Interface: dev.Name, Mode: Native}
	var err error
	if mode != Generic {
		a.link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: dev.Index, Flags: link.XDPDriverMode})
		switch {
		case err == nil:
			return a, nil
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
			return Attachment{}, fmt.Errorf("interface %s: another XDP program is attached to it: %w", dev.Name, err)
		case mode == Native:
			return Attachment{}, fmt.Errorf("interface %s: native XDP: %w", dev.Name, err)
		}
		a.Reason = fmt.Sprintf("native XDP refused by the driver: %v", err)
	}
	a.Mode = Generic
	a.link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: dev.Index, Flags: link.XDPGenericMode})
	if err != nil {
		return Attachment{}, fmt.Errorf("interface %s: generic XDP: %w", dev.Name, err)
	}
	return a, nil
}
