// SPDX-License-Identifier: Apache-2.0

// Package handover is the kernel's side of NAT towards backends that XDP can't
// send to, such as pods behind an overlay's device.
//
// It stands beside the data plane of DESIGN.md §5, which decides and keeps the
// sessions. Two tc programs do what is left: bpf/nat_handover.bpf.c, at the
// interfaces on which XDP runs, sends the packets that XDP has translated out of
// the device towards their backend; bpf/nat_reply.bpf.c, at that device,
// translates the answers and sends them to their clients. Their filters stay in
// the kernel when the agent ends, and work on the tables that it pinned.
package handover

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/internal/dataplane/xdp/hook"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" forward ../../../../bpf/nat_handover.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" reply ../../../../bpf/nat_reply.bpf.c

// priority is that of the filters, behind those of others who want to see
// packets first.
const priority = 50

// Config says on what the programs work.
type Config struct {
	// Owner tells the filters of several data planes in a network namespace
	// apart, and is the same for one agent and the next.
	Owner string
	// Interfaces are those on which XDP runs.
	Interfaces []string
	// Tables are the data plane's by name, Seed is that of its hashes.
	Tables map[string]*ebpf.Map
	Seed   uint64
}

// Handover has the programs of one data plane at work, in the network namespace
// of the thread that calls. Its methods are not safe for concurrent use.
type Handover struct {
	config  Config
	forward *ebpf.Program
	replies map[uint32]*ebpf.Program // by the bytes of the device's link layer
	// devices are those at which this process has attached the programs; trimmed
	// says that there are no others of the owner.
	devices map[int]bool
	trimmed bool
}

// New returns a Handover that has attached nothing. What an earlier one has is at
// work until it is replaced or detached.
func New(cfg Config) *Handover {
	return &Handover{config: cfg, replies: map[uint32]*ebpf.Program{}, devices: map[int]bool{}}
}

// Attach puts the programs to work for backends behind a device, of this index.
// Those of an earlier agent are replaced, each in one step.
func (h *Handover) Attach(device int) error {
	if h.devices[device] {
		return nil
	}
	// Answers first: nothing is sent as long as they aren't understood.
	program, err := h.replyProgram(device)
	if err != nil {
		return fmt.Errorf("nat replies: %w", err)
	}
	if err := h.config.replyFilter(device).Attach(program); err != nil {
		return fmt.Errorf("nat replies: %w", err)
	}
	if err := h.attachForward(); err != nil {
		return fmt.Errorf("nat handover: %w", err)
	}
	h.devices[device] = true
	return nil
}

// attachForward puts the program for clients' packets on all interfaces.
func (h *Handover) attachForward() error {
	if h.forward != nil {
		return nil
	}
	var objects forwardObjects
	if err := loadForwardObjects(&objects, nil); err != nil {
		return err
	}
	for _, name := range h.config.Interfaces {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = h.config.forwardFilter(link.Attrs().Index).Attach(objects.HandOver)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("interface %s: %w", name, err), objects.Close())
		}
	}
	h.forward = objects.HandOver
	return nil
}

// replyProgram is the one for a device's kind.
func (h *Handover) replyProgram(device int) (*ebpf.Program, error) {
	link, err := netlink.LinkByIndex(device)
	if err != nil {
		return nil, fmt.Errorf("interface %d: %w", device, err)
	}
	length := linkLength(link)
	if program := h.replies[length]; program != nil {
		return program, nil
	}
	program, err := LoadReply(h.config, length)
	if err != nil {
		return nil, err
	}
	h.replies[length] = program
	return program, nil
}

// linkLength is that of a device's link-layer header in bytes: Ethernet's, or
// none.
func linkLength(link netlink.Link) uint32 {
	const ethernet = 14
	if link.Attrs().EncapType == "ether" {
		return ethernet
	}
	return 0
}

// LoadReply loads the program for answers on the data plane's tables, for devices
// with a link-layer header of that many bytes: 14 or none. The caller closes it.
func LoadReply(cfg Config, length uint32) (*ebpf.Program, error) {
	spec, err := loadReply()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[replyVarSkbLink].Set(length); err != nil {
		return nil, err
	}
	if err := spec.Variables[replyVarHashSeed].Set(cfg.Seed); err != nil {
		return nil, err
	}
	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	for name, table := range cfg.Tables {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = table.MaxEntries()
			options.MapReplacements[name] = table
		}
	}
	var programs replyPrograms
	if err := spec.LoadAndAssign(&programs, &options); err != nil {
		return nil, err
	}
	return programs.NatReply, nil
}

// Retain detaches the programs from all devices but those given; without any,
// also from the interfaces.
func (h *Handover) Retain(devices []int) error {
	left := func(device int, _ bool) bool { return !slices.Contains(devices, device) }
	before := len(h.devices)
	maps.DeleteFunc(h.devices, left)
	if h.trimmed && len(h.devices) == before {
		return nil
	}
	h.trimmed = false
	if err := detach(h.config, devices); err != nil {
		return err
	}
	h.trimmed = true
	if len(devices) > 0 || h.forward == nil {
		return nil
	}
	err := h.forward.Close()
	h.forward = nil
	return err
}

// Remove detaches everything of an owner in the calling thread's network
// namespace.
func Remove(owner string) error { return detach(Config{Owner: owner}, nil) }

// detach takes the owner's filters from all devices but some, and from the
// interfaces if there is no such device.
func detach(cfg Config, except []int) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("nat handover: %w", err)
	}
	var errs []error
	for _, link := range links {
		index := link.Attrs().Index
		if !slices.Contains(except, index) {
			errs = append(errs, cfg.replyFilter(index).DetachOwn())
		}
		if len(except) == 0 {
			errs = append(errs, cfg.forwardFilter(index).DetachOwn())
		}
	}
	return errors.Join(errs...)
}

// The two filters have places of their own: an interface may be a device too.
func (c *Config) forwardFilter(index int) hook.Filter {
	return hook.Filter{Interface: index, Direction: hook.Ingress, Priority: priority, Name: "fairlead nat handover " + c.Owner}
}

func (c *Config) replyFilter(index int) hook.Filter {
	return hook.Filter{Interface: index, Direction: hook.Ingress, Priority: priority + 1, Name: "fairlead nat reply " + c.Owner}
}

// Close frees the programs; what is attached stays at work.
func (h *Handover) Close() error {
	var errs []error
	if h.forward != nil {
		errs = append(errs, h.forward.Close())
	}
	for _, program := range h.replies {
		errs = append(errs, program.Close())
	}
	return errors.Join(errs...)
}
