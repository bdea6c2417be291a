// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// Unusable is the address of the backend that a data plane of Harness.New must not
// be able to use, for example for want of a route.
var Unusable = netip.MustParseAddr("10.0.2.99")

// Harness is an implementation under test.
type Harness struct {
	// New returns a data plane without services that can use every backend but
	// Unusable. Each test begins with a call of it, and uses no earlier one's.
	New func(t *testing.T) dataplane.DataPlane
	// Limits are the implementation's: the suite has tests for each capability.
	Limits dataplane.Limits
	// Forward is the mode of all services. An implementation with several runs
	// the suite for each.
	Forward lb.Forward
	// Complete, if set, adds the fields of backends that the mode needs.
	Complete func([]lb.Backend) []lb.Backend
	// MAC returns the address of the next hop to a backend; required with NextHopMACs.
	MAC func(backend netip.Addr) lb.MAC
	// Probe sends one packet to vip from client and returns which of the backends
	// it was forwarded to, or false if to none. The data plane is one of New's.
	Probe func(t *testing.T, dp dataplane.DataPlane, vip lb.VIP, client netip.AddrPort, backends []lb.Backend) (lb.BackendID, bool)
}

// contractTest is a test of the suite.
type contractTest struct {
	name string
	// needs is the capability of data planes that the test is for; the mode of the harness
	// stands in place of a "*".
	needs dataplane.Capability
	// unless, if set, reports the modes that don't go together with the capability.
	unless func(lb.Forward) bool
	run    func(*suite)
}

// basic is the capability that tests of every data plane need.
const basic dataplane.Capability = "forward *"

// contract are the tests of the suite.
func contract() []contractTest {
	return slices.Concat([]contractTest{
		{"update is idempotent", basic, nil, updateIdempotent},
		{"update changes one service", basic, nil, updateChangesOne},
		{"delete is idempotent", basic, nil, deleteIdempotent},
		{"delete and create again", basic, nil, recreate},
		{"prune keeps the listed VIPs", basic, nil, pruneKeeps},
		{"prune of everything", basic, nil, pruneAll},
		{"both families", basic, nil, bothFamilies},
		{"protocols and ports are apart", basic, nil, protocolsAndPortsApart},
		{"concurrent updates", basic, nil, concurrentUpdates},
		{"cancelled context", basic, nil, cancelled},
		{"too many backends", basic, nil, tooManyBackends},
		{"backends come and go", basic, nil, backendsComeAndGo},
		{"weights", basic, nil, weights},
		{"weight 0", basic, nil, weightZero},
		{"no usable backend", basic, nil, noUsableBackend},
		{"unusable backend", basic, nil, unusableBackend},
		{"backend is down", basic, nil, downBackend},
		{"all backends are down", basic, nil, allDown},
		{"death waits for nothing", basic, nil, deathWaitsForNothing},
		{"drained backend", basic, nil, drainedBackend},
		{"slow start", dataplane.Ring, nil, slowStart},
		{"order of backends", dataplane.Ring, nil, orderOfBackends},
		{"same flow same backend", "affinity flow", nil, sameFlow},
		{"removed backend gets nothing", basic, nil, removedGetsNothing},
		{"all backends get flows", "scheduler maglev", nil, allGetFlows},
		{"counters", basic, nil, counters},
	}, capabilityTests())
}

// RunContract runs the suite that every data plane passes: tests of the contract in
// the comments of dataplane.DataPlane. Reconcile and all that stands before it rely
// on nothing else, so a behaviour on which they depend belongs here and not into
// one implementation's tests. Tests of a capability that the data plane doesn't
// have aren't part of its suite.
func RunContract(t *testing.T, h Harness) {
	var backends []lb.Backend
	for i := range byte(8) {
		backends = append(backends, lb.Backend{Address: netip.AddrFrom4([4]byte{10, 0, 2, 21 + i})})
	}
	for i := range byte(8) {
		backends = append(backends, lb.Backend{Address: netip.AddrFrom16([16]byte{0: 0xfd, 3: 2, 15: 0x21 + i})})
	}
	backends = append(backends, lb.Backend{Address: Unusable})
	if h.Complete != nil {
		backends = h.Complete(backends)
	}
	can := h.Limits.Capabilities()
	for _, test := range contract() {
		needs := dataplane.Capability(strings.ReplaceAll(string(test.needs), "*", h.Forward.String()))
		if !slices.Contains(can, needs) || test.unless != nil && test.unless(h.Forward) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			test.run(&suite{T: t, Harness: h, backends: backends, dp: h.New(t)})
		})
	}
}

// Missing returns the capabilities that no test of the suite is for.
func Missing(can []dataplane.Capability) (missing []dataplane.Capability) {
	for _, c := range can {
		if !slices.ContainsFunc(contract(), func(test contractTest) bool {
			field, _, each := strings.Cut(string(test.needs), "*")
			return test.needs == c || each && strings.HasPrefix(string(c), field)
		}) {
			missing = append(missing, c)
		}
	}
	return missing
}

// suite is one test with its data plane.
type suite struct {
	*testing.T
	Harness
	// backends are eight of IPv4, eight of IPv6 and the unusable one.
	backends []lb.Backend
	dp       dataplane.DataPlane
}

// probe sends a packet and returns the backend that it was forwarded to, if any.
func (s *suite) probe(vip lb.VIP, client netip.AddrPort) (lb.BackendID, bool) {
	s.Helper()
	return s.Probe(s.T, s.dp, vip, client, s.backends)
}

// vip returns the nth IPv4 VIP, of the documentation prefix of RFC 5737.
func vip(n byte) lb.VIP {
	return lb.VIP{Address: netip.AddrFrom4([4]byte{192, 0, 2, n}), Port: 80, Protocol: lb.TCP}
}

// vip6 returns the nth IPv6 VIP, of the documentation prefix of RFC 3849.
func vip6(n byte) lb.VIP {
	address := netip.MustParseAddr("2001:db8::").As16()
	address[15] = n
	return lb.VIP{Address: netip.AddrFrom16(address), Port: 80, Protocol: lb.TCP}
}

// service returns a service with backends of the given weights, of the VIP's
// family.
func (s *suite) service(vip lb.VIP, weights ...int) *lb.Service {
	from := s.backends
	if vip.Address.Is6() {
		from = from[8:]
	}
	svc := &lb.Service{Name: vip.String(), VIP: vip, Forward: s.Forward, MinHealthy: 1}
	for i, weight := range weights {
		backend := from[i]
		backend.Port, backend.Weight = vip.Port, weight
		svc.Backends = append(svc.Backends, backend)
	}
	return svc
}

// update programs svc and checks the invariants of every result.
func (s *suite) update(svc *lb.Service) dataplane.Programmed {
	s.Helper()
	programmed, err := s.dp.Update(s.Context(), svc)
	if err != nil {
		s.Fatalf("update: %v", err)
	}
	s.checkProgrammed(svc, programmed)
	return programmed
}

func (s *suite) checkProgrammed(svc *lb.Service, p dataplane.Programmed) {
	s.Helper()
	if len(p.Backends) != len(svc.Backends) {
		s.Fatalf("%d backend states for %d backends", len(p.Backends), len(svc.Backends))
	}
	entries := 0
	for i, b := range p.Backends {
		if b.ID != svc.Backends[i].ID() {
			s.Errorf("backend state %d is of %s, want %s: the service's order", i, b.ID, svc.Backends[i].ID())
		}
		if b.InUse != (b.Reason == "") || b.InUse != (b.RingEntries > 0) {
			s.Errorf("backend %s: in use %t, reason %q, %d ring entries don't fit", b.ID, b.InUse, b.Reason, b.RingEntries)
		}
		entries += b.RingEntries
	}
	if entries != p.RingSize {
		s.Errorf("the backends' ring entries sum to %d, want the ring's size %d", entries, p.RingSize)
	}
}

// wantServices checks that exactly these services exist.
func (s *suite) wantServices(want ...lb.VIP) {
	s.Helper()
	var got []lb.VIP
	for vip := range s.stats().Services {
		got = append(got, vip)
	}
	slices.SortFunc(got, lb.VIP.Compare)
	slices.SortFunc(want, lb.VIP.Compare)
	if !slices.Equal(got, want) {
		s.Errorf("stats has the services %v, want %v", got, want)
	}
}

func (s *suite) stats() dataplane.Stats {
	s.Helper()
	stats, err := s.dp.Stats(s.Context())
	if err != nil {
		s.Fatalf("stats: %v", err)
	}
	return stats
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// same reports whether two results are alike but for the order of backends.
func same(a, b dataplane.Programmed) bool {
	byID := func(x, y dataplane.BackendState) int {
		return x.ID.Compare(y.ID)
	}
	return a.RingSize == b.RingSize && slices.Equal(
		slices.SortedFunc(slices.Values(a.Backends), byID),
		slices.SortedFunc(slices.Values(b.Backends), byID))
}
