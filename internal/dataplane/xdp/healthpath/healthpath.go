// SPDX-License-Identifier: Apache-2.0

// Package healthpath sends packets of this machine's own sockets to one backend each,
// along the path that the data plane's packets take (docs/design/programs.md).
//
// A socket that addresses a VIP names the backend by its mark (SO_MARK). A
// routing rule leads packets with such a mark into a veth pair, whatever the
// routes to the VIP are:
//
//	socket ── rule, table ── fairlead-probe ══ fairlead-send ── the backend's interface
//	                         tc egress: mark    XDP: target,
//	                         to MAC address     encapsulation
//
// The program at the far end encapsulates by the balancer's own code and reads its
// tables, so that probes equal a client's packets, byte for byte. It
// runs in the network stack (generic XDP), which can send by every interface, as
// drivers with native XDP needn't be able to take redirected frames.
//
// Answers come straight to the socket's address. They have a VIP for a source:
// a strict reverse path filter (rp_filter) drops them unless the route to the
// VIP leaves by the interface on which they arrive.
//
// There is one sender in a network namespace. Its devices, rules and routes end
// with it, or, if it was killed, with the next one or Remove. The program is
// bpf/probe.bpf.c.
package healthpath

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

//go:generate go tool bpf2go -target bpfel -no-global-types -type probe_mark probe ../../../../bpf/probe.bpf.c

// keepInterval is how often the device, rules and routes are checked: other programs
// delete rules and routes that they don't know.
const keepInterval = 2 * time.Second

// Config configures a Sender.
type Config struct {
	// Tables are the balancer's, by name.
	Tables map[string]*ebpf.Map
	// Seed is the balancer's, for equal source ports of tunnels.
	Seed uint64
	// Targets is how many backends can have a mark at once; MaxTargets at most.
	Targets int
	Log     *slog.Logger
}

// MaxTargets is the number of marks.
const MaxTargets = int(probeProbeMarkPROBE_NUMBER) + 1

// Sender sends probes in one network namespace.
type Sender struct {
	log      *slog.Logger
	objects  objects
	counters program.Counters
	device   device
	hook     program.Attachment
	done     chan struct{}
	running  sync.WaitGroup
	claim    *net.UnixConn
	netlink  *netlink.Handle
}

// Open replaces the state of an earlier Sender in the calling thread's network
// namespace. The caller closes it.
func Open(cfg Config) (s *Sender, err error) {
	if cfg.Targets < 1 || cfg.Targets > MaxTargets {
		return nil, fmt.Errorf("probes: %d targets: want 1 to %d", cfg.Targets, MaxTargets)
	}
	s = &Sender{log: cfg.Log, done: make(chan struct{})}
	defer func() {
		if err != nil {
			s, err = nil, fmt.Errorf("probes: %w", errors.Join(err, s.Close()))
		}
	}()
	if s.claim, err = claim(); err != nil {
		return s, err
	}
	if s.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return s, err
	}
	if err = clean(s.netlink); err != nil {
		return s, err
	}
	if s.objects, s.counters, err = load(cfg); err != nil {
		return s, err
	}
	if err = s.makePath(); err != nil {
		return s, err
	}
	s.running.Go(s.keep)
	return s, nil
}

// makePath makes the device, with the programs, and leads probes there.
func (s *Sender) makePath() (err error) {
	if s.device, err = makeDevice(s.netlink); err != nil {
		return err
	}
	if err = s.attach(); err != nil {
		return err
	}
	_, err = s.device.route(s.netlink)
	return err
}

// attach puts the programs on the two ends, and switches those on.
func (s *Sender) attach() (err error) {
	address := program.Filter{Interface: s.device.near, Direction: program.Egress, Priority: 1, Name: deviceName}
	if err = address.Attach(s.objects.AddressProbe); err != nil {
		return err
	}
	far := &net.Interface{Index: s.device.far, Name: peerName}
	if s.hook, err = program.Attach(s.objects.SendProbe, far, program.Generic); err != nil {
		return err
	}
	return s.device.up(s.netlink)
}

// keep restores state that other programs remove: without it probes would follow the
// VIP's route and reach another backend.
func (s *Sender) keep() {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		if err := s.restore(); err != nil {
			s.log.Warn("probes have no route", "error", err)
		}
	}
}

// restore recreates missing devices, routes and rules.
func (s *Sender) restore() error {
	_, err := s.netlink.LinkByIndex(s.device.near)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		s.log.Warn("device of probes was missing", "device", deviceName)
		return errors.Join(s.hook.Close(), clean(s.netlink), s.makePath())
	}
	missing, err := s.device.route(s.netlink)
	if missing {
		s.log.Warn("routing rule of probes was missing", "device", deviceName)
	}
	return err
}

// Mark is the socket mark of the target with that number, below Config.Targets.
func Mark(number uint32) uint32 { return uint32(probeProbeMarkPROBE_MARK) | number }

// Aim makes the entry of the balancer's backend table with that index, plus 1, the
// target of a number; at 0 its packets are dropped. Packets in flight may still go to
// the one before.
func (s *Sender) Aim(number, place uint32) error {
	if err := s.objects.Targets.Put(number, place); err != nil {
		return fmt.Errorf("probe target %d: %w", number, err)
	}
	return nil
}

// Counters counts packets by outcome: all but "sent" were dropped.
func (s *Sender) Counters() (map[string]uint64, error) { return s.counters.Read() }

// Close ends probing and removes all that Open made.
func (s *Sender) Close() error {
	close(s.done)
	s.running.Wait()
	errs := []error{s.hook.Close()}
	if s.netlink != nil {
		errs = append(errs, clean(s.netlink))
		s.netlink.Close()
	}
	errs = append(errs, s.objects.close())
	if s.claim != nil {
		errs = append(errs, s.claim.Close())
	}
	return errors.Join(errs...)
}

// errClaimed is returned if there is another Sender in this network namespace.
var errClaimed = errors.New("another agent sends probes in this network namespace")

// claim keeps other processes from sending probes in this network namespace, to
// which the name of an abstract socket belongs, until the socket is closed.
func claim() (*net.UnixConn, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@" + deviceName, Net: "unixgram"})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, errClaimed
	}
	return conn, err
}

// Remove removes the state of a killed Sender from the calling thread's network
// namespace; a running one is left alone.
func Remove() error {
	conn, err := claim()
	if errors.Is(err, errClaimed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("probes: %w", err)
	}
	defer conn.Close()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("probes: %w", err)
	}
	defer handle.Close()
	if err := clean(handle); err != nil {
		return fmt.Errorf("probes: %w", err)
	}
	return nil
}

// objects are the programs and the tables that are theirs alone; the others are
// the balancer's.
type objects struct {
	AddressProbe *ebpf.Program `ebpf:"address_probe"`
	SendProbe    *ebpf.Program `ebpf:"send_probe"`
	Targets      *ebpf.Map     `ebpf:"probe_targets"`
	Counters     *ebpf.Map     `ebpf:"probe_counters"`
}

// close closes the process's objects; attached programs stay attached.
func (o *objects) close() error {
	return errors.Join(o.AddressProbe.Close(), o.SendProbe.Close(), o.Targets.Close(), o.Counters.Close())
}

// load loads the programs on the balancer's tables.
func load(cfg Config) (objects, program.Counters, error) {
	var o objects
	spec, err := loadProbe()
	if err != nil {
		return o, program.Counters{}, err
	}
	spec.Maps[probeMapProbeTargets].MaxEntries = uint32(cfg.Targets)
	if err := program.SetConstants(spec, map[string]any{probeVarHashSeed: cfg.Seed}); err != nil {
		return o, program.Counters{}, err
	}
	options, err := table.Use(cfg.Tables, spec)
	if err != nil {
		return o, program.Counters{}, err
	}
	if err := spec.LoadAndAssign(&o, options); err != nil {
		return o, program.Counters{}, fmt.Errorf("probe programs: %w", err)
	}
	set, err := program.NewCounters(spec.Types, "probe_counter", "PROBE_COUNTER_", o.Counters)
	return o, set, err
}
