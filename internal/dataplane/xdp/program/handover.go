// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/host/rtnl"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/nexthop"
)

//go:generate go tool bpf2go -target bpfel -no-global-types forward ../../../../bpf/nat_handover.bpf.c
//go:generate go tool bpf2go -target bpfel -no-global-types reply ../../../../bpf/nat_reply.bpf.c

// handoverPriority is the priority of the filters, behind other programs' filters
// that want to see packets first.
const handoverPriority = 50

// HandoverConfig has the tables and interfaces of a Handover.
type HandoverConfig struct {
	// Owner distinguishes the filters of several data planes in a network
	// namespace, and is the same for one agent and the next.
	Owner string
	// Interfaces are those on which XDP runs.
	Interfaces []string
	Tables     *table.Tables
}

// Device is one behind which backends are. The loopback interface stands for backends that this
// machine's network stack leads to: their answers leave through the interfaces on which XDP runs.
type Device struct {
	Index int
	// MAC is zero at a device without Ethernet address. It distinguishes a device
	// from an earlier one with the same index, as containers' devices may have.
	MAC lb.MAC
}

// ErrGone is in the chain of the error for a device that was removed.
var ErrGone = errors.New("the device is gone")

// Handover has the programs of one data plane for NAT towards backends that XDP can't
// send to, such as pods behind an overlay's device. It works in the network namespace
// of the thread that calls. Its methods are not safe for concurrent use.
//
// There are two tc programs. bpf/nat_handover.bpf.c, at the ingress of the interfaces on which XDP
// runs, sends translated packets out of the backend's device, or leaves them to the network stack.
// bpf/nat_reply.bpf.c translates the answers and sends them to their clients: at the ingress of
// that device or, behind the stack, at the egress of the interfaces. Their filters stay in the
// kernel when the agent ends, and use its pinned tables.
type Handover struct {
	config HandoverConfig
	// forward and replies are nil before Load.
	forward *ebpf.Program
	replies map[uint32]*ebpf.Program // by the bytes of the device's link layer
	// devices are those at which this process has attached the programs, by index, and
	// forwards is set if it has at the interfaces.
	devices  map[int]Device
	forwards bool
	// trimmed is set if the owner has no other filters; looked are the devices that were
	// retained when the others' filters were last looked for.
	trimmed bool
	looked  map[int]bool
}

// NewHandover returns a Handover that has attached nothing. An earlier one's programs
// work until they are replaced or detached.
func NewHandover(cfg HandoverConfig) *Handover {
	return &Handover{config: cfg, replies: map[uint32]*ebpf.Program{}, devices: map[int]Device{}}
}

// Load loads the programs, once. Unlike the other methods it may be called together with
// any that doesn't use the programs, but not with another load of a program on the tables.
func (h *Handover) Load() error {
	if h.forward != nil {
		return nil
	}
	if err := table.GrowSessions(h.config.Tables); err != nil {
		return fmt.Errorf("nat handover: %w", err)
	}
	var objects forwardObjects
	var replies [2]*ebpf.Program
	var loads errgroup.Group
	loads.Go(func() error { return loadForwardObjects(&objects, nil) })
	lengths := []uint32{0, ethernetHeader}
	for i, length := range lengths {
		loads.Go(func() (err error) {
			replies[i], err = LoadReply(h.config, length)
			return err
		})
	}
	if err := loads.Wait(); err != nil {
		return errors.Join(fmt.Errorf("nat handover: %w", err), objects.Close(), replies[0].Close(), replies[1].Close())
	}
	for i, length := range lengths {
		h.replies[length] = replies[i]
	}
	h.forward = objects.HandOver
	return nil
}

// Attach puts the programs to work for backends behind a device. Programs of an
// earlier agent are replaced, each in one step.
func (h *Handover) Attach(device Device) error {
	if known, ok := h.devices[device.Index]; ok && known == device {
		return nil
	}
	if err := h.Load(); err != nil {
		return err
	}
	// Answers first: nothing is sent as long as they aren't understood.
	if err := h.attachReply(device.Index); err != nil {
		return fmt.Errorf("nat replies: %w", err)
	}
	if err := h.attachForward(); err != nil {
		return fmt.Errorf("nat handover: %w", err)
	}
	h.devices[device.Index] = device
	return nil
}

// attachReply puts the program for answers at a device.
func (h *Handover) attachReply(device int) error {
	if device == nexthop.Loopback {
		return h.attachOwnReplies()
	}
	link, err := netlink.LinkByIndex(device)
	if err == nil {
		err = h.config.replyFilter(device).Attach(h.replies[linkLength(link)])
	}
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: interface %d: %w", ErrGone, device, err)
	}
	return err
}

// attachOwnReplies puts the program for answers where those from the network stack leave.
func (h *Handover) attachOwnReplies() error {
	for _, name := range h.config.Interfaces {
		if err := h.attachOwnReply(name); err != nil {
			return err
		}
	}
	return nil
}

// attachOwnReply does so at one interface, if that exists.
func (h *Handover) attachOwnReply(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = h.config.ownReplyFilter(link.Attrs().Index).Attach(h.replies[linkLength(link)])
	}
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone || err == nil {
		return nil
	}
	return fmt.Errorf("interface %s: %w", name, err)
}

// detachReply takes the program for answers from a device.
func (h *Handover) detachReply(device int) error {
	if device != nexthop.Loopback {
		return h.config.replyFilter(device).Detach()
	}
	return h.eachInterface(func(index int) error { return h.config.ownReplyFilter(index).Detach() })
}

// eachInterface calls do with each interface on which XDP runs and that exists.
func (h *Handover) eachInterface(do func(index int) error) error {
	for _, name := range h.config.Interfaces {
		link, err := netlink.LinkByName(name)
		if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
			continue
		}
		if err == nil {
			err = do(link.Attrs().Index)
		}
		if err != nil {
			return fmt.Errorf("nat handover: interface %s: %w", name, err)
		}
	}
	return nil
}

// attachForward puts the program for clients' packets on all interfaces that exist; the
// others are left to Reattach.
func (h *Handover) attachForward() error {
	if h.forwards {
		return nil
	}
	h.forwards = true
	for _, name := range h.config.Interfaces {
		if err := h.Reattach(name); err != nil {
			h.forwards = false
			return err
		}
	}
	return nil
}

// Reattach puts the programs on an interface that was created again, if there is work for
// them.
func (h *Handover) Reattach(name string) error {
	if !h.forwards {
		return nil
	}
	if _, own := h.devices[nexthop.Loopback]; own {
		if err := h.attachOwnReply(name); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = h.config.forwardFilter(link.Attrs().Index).Attach(h.forward)
	}
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone || err == nil {
		return nil
	}
	return fmt.Errorf("interface %s: %w", name, err)
}

// linkLength returns the length of a device's link-layer header in bytes:
// Ethernet's, or 0.
func linkLength(link netlink.Link) uint32 {
	if link.Attrs().EncapType == "ether" {
		return ethernetHeader
	}
	return 0
}

// LoadReply loads the program for answers on the data plane's tables, for devices
// with a link-layer header of that many bytes: 14 or none. The caller closes it.
func LoadReply(cfg HandoverConfig, length uint32) (*ebpf.Program, error) {
	spec, err := loadReply()
	if err != nil {
		return nil, err
	}
	var secrets table.BalancerSecrets
	if err := cfg.Tables.Maps.Secrets.Lookup(uint32(0), &secrets); err != nil {
		return nil, fmt.Errorf("table secrets: %w", err)
	}
	err = SetConstants(spec, map[string]any{
		replyVarSkbLink: length, replyVarKeySeed: secrets.KeySeed, replyVarKeySecrets: secrets.KeySecrets,
		replyVarPlaceSecretLow: secrets.PlaceSecrets[0], replyVarPlaceSecretHigh: secrets.PlaceSecrets[1],
	})
	if err != nil {
		return nil, err
	}
	options, err := table.Use(cfg.Tables.ByName, spec)
	if err != nil {
		return nil, err
	}
	var programs replyPrograms
	if err := spec.LoadAndAssign(&programs, options); err != nil {
		return nil, err
	}
	return programs.NatReply, nil
}

// Retain detaches the programs from all devices but those given; without any,
// also from the interfaces. Attachments of an earlier process are looked for until
// none of the devices is retained for their sake.
func (h *Handover) Retain(devices []Device) error {
	kept := make(map[int]bool, len(devices))
	for _, d := range devices {
		kept[d.Index] = true
	}
	var errs []error
	for index := range h.devices {
		if kept[index] {
			continue
		}
		err := h.detachReply(index)
		if errs = append(errs, err); err == nil {
			delete(h.devices, index)
		}
	}
	if !h.trimmed && (h.looked == nil || !maps.Equal(kept, h.looked)) {
		err := detachHandover(h.config, kept)
		if errs = append(errs, err); err == nil {
			h.looked, h.trimmed = kept, !slices.ContainsFunc(devices, h.isOthers)
		}
	}
	if len(devices) == 0 {
		errs = append(errs, h.detachForward())
	}
	return errors.Join(errs...)
}

// isOthers reports whether the filter at a device is an earlier process's.
func (h *Handover) isOthers(d Device) bool {
	_, own := h.devices[d.Index]
	return !own
}

// detachForward takes the program for clients' packets from all interfaces.
func (h *Handover) detachForward() error {
	if !h.forwards {
		return nil
	}
	err := h.eachInterface(func(index int) error { return h.config.forwardFilter(index).Detach() })
	h.forwards = err != nil
	return err
}

// RemoveHandover detaches everything of an owner in the calling thread's network
// namespace.
func RemoveHandover(owner string) error { return detachHandover(HandoverConfig{Owner: owner}, nil) }

// detachHandover takes the owner's filters from all devices but some, and from the
// interfaces if there is no such device, or if they aren't the configuration's any more.
func detachHandover(cfg HandoverConfig, except map[int]bool) error {
	links, err := rtnl.Dump(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("nat handover: %w", err)
	}
	var errs []error
	for _, link := range links {
		index := link.Attrs().Index
		listed := slices.Contains(cfg.Interfaces, link.Attrs().Name)
		if !listed || !except[nexthop.Loopback] {
			errs = append(errs, cfg.ownReplyFilter(index).Detach())
		}
		if !except[index] {
			errs = append(errs, cfg.replyFilter(index).Detach())
		}
		if !listed || len(except) == 0 {
			errs = append(errs, cfg.forwardFilter(index).Detach())
		}
	}
	return errors.Join(errs...)
}

// The filters have places of their own: an interface may be a device too.
func (c *HandoverConfig) forwardFilter(index int) Filter {
	return Filter{Interface: index, Direction: Ingress, Priority: handoverPriority, Name: "fairlead nat handover " + c.Owner}
}

func (c *HandoverConfig) replyFilter(index int) Filter {
	return Filter{Interface: index, Direction: Ingress, Priority: handoverPriority + 1, Name: "fairlead nat reply " + c.Owner}
}

func (c *HandoverConfig) ownReplyFilter(index int) Filter {
	return Filter{Interface: index, Direction: Egress, Priority: handoverPriority + 1, Name: "fairlead nat own reply " + c.Owner}
}

// Close frees the programs; attached programs continue to work.
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
