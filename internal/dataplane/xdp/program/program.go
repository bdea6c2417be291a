// SPDX-License-Identifier: Apache-2.0

// Package program loads BPF programs and attaches them: Set is the balancer on a data
// plane's tables, with no more features than services need, tested before it replaces
// another; Handover has the programs for backends that XDP can't send to; and
// TunnelEnd is a worker's.
//
// Package xdp decides which features are needed, and holds its lock around every call
// that isn't said to need none. "fairlead node" runs a TunnelEnd.
package program

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// Config is how programs are loaded and where they are attached.
type Config struct {
	Tables *table.Tables
	// Seed of the flow hash.
	Seed uint64
	NAT  NAT
	// PinDir is the directory of the pinned links.
	PinDir     string
	Interfaces []string
	Mode       Mode
	Log        *slog.Logger
	// Test tests a program with these features before it is used; nil doesn't.
	Test func(Features) error
	// Replaced is called with the reason when another program has taken the place
	// of the one in use; nil if it is of no interest.
	Replaced func(reason string)
}

// Set is the program in use, the features that services need of it, and its
// attachments.
type Set struct {
	config Config
	exits  Counters
	needs  featureCounts
	// program is nil until the needed features are known.
	program  *ebpf.Program
	Features Features
	// attached is set once interfaces are to have the program.
	attached    bool
	attachments []Attachment
	// inherits is set if an earlier agent's programs run on these tables, and
	// inherited are their features, until they are replaced.
	inherits  bool
	inherited Features
	tracer    *tracer // nil before the first trace
}

// New returns a set without a program.
func New(cfg Config) (*Set, error) {
	s := &Set{config: cfg}
	s.config.NAT.FirstPort = cmp.Or(cfg.NAT.FirstPort, DefaultFirstPort)
	s.config.NAT.LastPort = cmp.Or(cfg.NAT.LastPort, DefaultLastPort)
	var err error
	s.exits, err = NewCounters(cfg.Tables.Spec().Types, "counter", "COUNTER_", cfg.Tables.Maps.Counters)
	return s, err
}

// Exits counts packets by the way they left the program, by name.
func (s *Set) Exits() (map[string]uint64, error) { return s.exits.Read() }

// Recount takes a service from those that need some features to those that need
// others.
func (s *Set) Recount(from, to Features) {
	for bit := range s.needs {
		s.needs[bit] += int(to>>bit&1) - int(from>>bit&1)
	}
}

// Needs returns the features that at least one service needs.
func (s *Set) Needs() Features { return s.needs.needed() }

// Lacks reports whether the program in use can't serve a service with these features:
// also the program that an earlier agent left running.
func (s *Set) Lacks(f Features) bool {
	switch {
	case s.inherits:
		return f&^s.inherited != 0
	case s.attached:
		return f&^s.Features != 0
	}
	return false // Attach is preceded by a program with the features needed by then
}

// Program is the one in use; nil before the first.
func (s *Set) Program() *ebpf.Program { return s.program }

// Suits reports whether the program in use has the features that services need, and
// no others.
func (s *Set) Suits() bool { return s.program != nil && s.Features == s.Needs() }

// Attached reports whether Attach has been called, or programs of an earlier agent have
// been replaced.
func (s *Set) Attached() bool { return s.attached }

// takeOver replaces the programs that an earlier agent left running.
func (s *Set) takeOver() error {
	s.attached = true
	for _, pin := range LinkPins(s.config.PinDir) {
		if name := linkInterface(pin); slices.Contains(s.config.Interfaces, name) {
			if err := s.attachTo(name); err != nil && interfaceExists(name) {
				return err
			}
		}
	}
	s.inherits = false
	return nil
}

// Inherit finds the features of the programs that an earlier agent left running on
// the same tables: all of them, as packets may come to any.
func (s *Set) Inherit() error {
	s.inherited = AllFeatures
	for _, pin := range LinkPins(s.config.PinDir) {
		f, err := runningFeatures(pin)
		if err != nil {
			return err
		}
		s.inherits = true
		s.inherited &= f
	}
	return nil
}

// Use puts a program with these features, from Compile, in the place of the one in
// use, on all interfaces: one atomic step for each, so no packet misses the program.
// After an error all interfaces have the program that they had, and the new one is
// closed. Interfaces that have been deleted are left to Reattach.
func (s *Set) Use(next *ebpf.Program, f Features) error {
	if err := s.replace(next); err != nil {
		return errors.Join(err, next.Close())
	}
	old, before := s.program, s.Features
	s.program, s.Features = next, f
	var err error
	if old != nil {
		if s.config.Replaced != nil {
			s.config.Replaced(replacement(before, f))
		}
		err = old.Close()
	}
	if s.inherits {
		err = errors.Join(err, s.takeOver())
	}
	return err
}

// replace updates the links to another program.
func (s *Set) replace(next *ebpf.Program) error {
	for i, a := range s.attachments {
		err := a.link.Update(next)
		if err == nil || errors.Is(err, unix.ENOLINK) { // the interface has been deleted
			continue
		}
		errs := []error{fmt.Errorf("interface %s: replace program: %w", a.Interface, err)}
		for _, done := range s.attachments[:i] {
			if err := done.link.Update(s.program); err != nil && !errors.Is(err, unix.ENOLINK) {
				errs = append(errs, fmt.Errorf("interface %s: restore program: %w", done.Interface, err))
			}
		}
		return errors.Join(errs...)
	}
	return nil
}

// Compile loads a program with these features for Use, and tests it meanwhile on tables
// of its own. That takes the kernel hundreds of milliseconds: unlike the other methods,
// Compile may be called together with any of them. A program that fails its test, or
// that the kernel refuses, never processes a packet.
func (s *Set) Compile(f Features) (*ebpf.Program, error) {
	var test errgroup.Group
	if s.config.Test != nil {
		test.Go(func() error { return s.config.Test(f) })
	}
	program, err := s.compile(f)
	if failed := test.Wait(); failed != nil && err == nil {
		return nil, errors.Join(failed, program.Close())
	}
	return program, err
}

// Load makes a program with these features the one in use, untested, as long as
// there are no attachments: for self-tests.
func (s *Set) Load(f Features) (*ebpf.Program, error) {
	next, err := s.compile(f)
	if err == nil && s.program != nil {
		err = s.program.Close()
	}
	s.program, s.Features = next, f
	return next, err
}

// compile loads a program with these features on the tables.
func (s *Set) compile(f Features) (*ebpf.Program, error) {
	if f&FeatureNAT != 0 {
		if err := table.GrowSessions(s.config.Tables); err != nil {
			return nil, err
		}
	}
	spec, err := s.specification(f)
	if err != nil {
		return nil, err
	}
	options, err := table.Use(s.config.Tables.ByName, spec)
	if err != nil {
		return nil, err
	}
	inlineConstants(spec)
	var programs table.BalancerPrograms
	if err := spec.LoadAndAssign(&programs, options); err != nil {
		return nil, loadError(err)
	}
	return programs.Balance, nil
}

// programName has the program's features, for later agents. The kernel keeps 15
// characters of a name.
const programName = "balance_%x"

// specification is the program with its constants.
func (s *Set) specification(f Features) (*ebpf.CollectionSpec, error) {
	spec, nat := s.config.Tables.Spec(), s.config.NAT
	spec.Programs[table.BalancerProgBalance].Name = fmt.Sprintf(programName, uint32(f))
	constants := map[string]any{
		table.BalancerVarHashSeed:         s.config.Seed,
		table.BalancerVarRecordInterval:   s.config.Tables.Capacity.RecordInterval(),
		table.BalancerVarClientInterval:   s.config.Tables.Capacity.ClientInterval(),
		table.BalancerVarNatFirstPort:     uint32(nat.FirstPort),
		table.BalancerVarNatPorts:         uint32(nat.LastPort) - uint32(nat.FirstPort) + 1,
		table.BalancerVarNatIpv4Addresses: nat.count(true),
		table.BalancerVarNatIpv6Addresses: nat.count(false),
	}
	for bit, name := range featureConstants() {
		constants[name] = uint8(f >> bit & 1)
	}
	return spec, SetConstants(spec, constants)
}

// SetConstants sets load-time constants of programs, by name.
func SetConstants(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return nil
}

// loadError adds a remedy for the user to an error of the kernel.
func loadError(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("kernel refuses the balancer program: %w", verifier)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("loading the balancer program needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: %w", err)
	}
	return fmt.Errorf("balancer program: %w", err)
}

// Attach puts the program in use on the configured interfaces of the current network
// namespace and takes it off those that are not configured any more. It is called once,
// when services have been programmed.
func (s *Set) Attach() error {
	s.attached = true
	for _, name := range s.config.Interfaces {
		if err := s.attachTo(name); err != nil {
			return err
		}
	}
	return DetachOthers(s.config.PinDir, s.config.Interfaces)
}

// attachTo puts the program on one interface, unless it is there.
func (s *Set) attachTo(name string) error {
	if slices.ContainsFunc(s.attachments, func(a Attachment) bool { return a.Interface == name }) {
		return nil
	}
	a, err := attach(s.program, s.config.PinDir, name, s.config.Mode)
	if err != nil {
		return err
	}
	s.attachments = append(s.attachments, a)
	s.config.Log.Info("program attached", "interface", a.Interface, "mode", a.Mode, "reason", a.Reason, "adopted", a.Adopted)
	return nil
}

// Reattach puts the program on the configured interfaces that have lost it, as those do
// that are deleted and created again. It returns them, and why others are without it.
func (s *Set) Reattach() (again []string, missing error) {
	s.attachments = slices.DeleteFunc(s.attachments, func(a Attachment) bool {
		if a.live() {
			return false
		}
		if err := a.Close(); err != nil {
			s.config.Log.Warn("link not closed", "interface", a.Interface, "error", err)
		}
		return true
	})
	var errs []error
	for _, name := range s.config.Interfaces {
		before := len(s.attachments)
		errs = append(errs, s.attachTo(name))
		if len(s.attachments) > before {
			again = append(again, name)
		}
	}
	return again, errors.Join(errs...)
}

// Attachments lists the interfaces on which the program runs.
func (s *Set) Attachments() []Attachment { return slices.Clone(s.attachments) }

// Close closes the process's descriptors; attachments stay.
func (s *Set) Close() error {
	var errs []error
	for _, a := range s.attachments {
		errs = append(errs, a.Close())
	}
	errs = append(errs, s.tracer.close())
	if s.program != nil {
		errs = append(errs, s.program.Close())
	}
	return errors.Join(errs...)
}

// NAT is where flows of services with mode NAT come from at their backends.
type NAT struct {
	// Addresses are this node's; of a family without any it is the address that
	// the route to the backend prefers. At most 64 of each family.
	Addresses []netip.Addr
	// FirstPort and LastPort are the range of ports; 0 means 1024 and 32767, the
	// ports below Linux's own range.
	FirstPort, LastPort uint16
}

// The range of ports that a NAT without one has.
const (
	DefaultFirstPort = 1024
	DefaultLastPort  = 32767
)

// count is the number of addresses of one family.
func (n NAT) count(ipv4 bool) uint32 {
	var count uint32
	for _, a := range n.Addresses {
		if a.Is4() == ipv4 {
			count++
		}
	}
	return count
}
