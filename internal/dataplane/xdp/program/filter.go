// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Direction is a side of the network stack on which tc programs see packets.
type Direction uint32

// The directions: packets that come in by an interface, and those that leave.
const (
	Ingress Direction = netlink.HANDLE_MIN_INGRESS
	Egress  Direction = netlink.HANDLE_MIN_EGRESS
)

func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

// filterHandle is the handle of Fairlead's filters, which distinguishes them from
// others of the same priority.
const filterHandle = 0xfa

// Filter is a place for a tc program: a filter of the classifier "bpf" with
// direct action, below the queueing discipline "clsact". That is older than tcx
// (kernel 6.6), and works alongside the filters of other programs.
type Filter struct {
	// Interface is an index in the calling thread's network namespace.
	Interface int
	Direction Direction
	// Priority orders the filters of an interface, 1 first. One that returns
	// TC_ACT_UNSPEC lets the next one decide.
	Priority uint16
	// Name identifies the filter's owner, and shows in "tc filter".
	Name string
}

// Attach puts the program into the filter, in one step if there was another one:
// each packet sees one of the two. It outlives the process, and ends with the
// interface.
func (f Filter) Attach(program *ebpf.Program) error {
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: f.Interface, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(clsact); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%s: clsact: %w", f, err)
	}
	if _, err := f.find(); err != nil {
		return err
	}
	err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: f.attrs(), Fd: program.FD(), Name: f.Name, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("%s: attach: %w", f, err)
	}
	return nil
}

// Detach removes the filter, if it is there; another program's in its place is left
// alone. The queueing discipline stays: another program may use it and have no filter
// at the moment.
func (f Filter) Detach() error {
	found, err := f.find()
	if errors.Is(err, errForeign) {
		return nil
	}
	if err != nil || found == nil {
		return err
	}
	err = netlink.FilterDel(found)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: detach: %w", f, err)
	}
	return nil
}

// errForeign is returned for a filter of another program.
var errForeign = errors.New("another filter is in its place")

// find returns the filter, or nil; another program's in its place is an error.
func (f Filter) find() (*netlink.BpfFilter, error) {
	link, err := netlink.LinkByIndex(f.Interface)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	filters, err := netlink.FilterList(link, uint32(f.Direction))
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	for _, one := range filters {
		if one.Attrs().Priority != f.Priority || one.Attrs().Handle != filterHandle {
			continue
		}
		if b, ok := one.(*netlink.BpfFilter); ok && b.Name == f.Name {
			return b, nil
		}
		return nil, fmt.Errorf("%s: %w: priority %d, handle 0x%x", f, errForeign, f.Priority, filterHandle)
	}
	return nil, nil
}

func (f Filter) attrs() netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: f.Interface,
		Parent:    uint32(f.Direction),
		Handle:    filterHandle,
		Priority:  f.Priority,
		Protocol:  unix.ETH_P_ALL,
	}
}

// String returns for example "interface 2 egress: filter fairlead".
func (f Filter) String() string {
	return fmt.Sprintf("interface %d %s: filter %s", f.Interface, f.Direction, f.Name)
}
