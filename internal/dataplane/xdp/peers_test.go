// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
	"fairlead.io/fairlead/test/fuzzrand"
)

// peers are balancers of one service behind a router that sends each packet to
// any of them.
type peers struct {
	t        *testing.T
	random   *rand.Rand
	all      []*balanced
	backends []dataplanetest.Backend
	present  []bool
	clients  int
	homes    map[int]netip.AddrPort
}

// Three balancers whose histories differ until some flows begin, so that their
// tables do too, decide alike about the packets of these flows through the
// changes that they all see, whichever of them a packet reaches and whichever is
// restarted in between.
func TestPeersDecideAlike(t *testing.T) {
	const changes = 20
	runs, packets := 0, 0
	for name, svc := range historyServices() {
		if svc.Protocol != lb.TCP || svc.Tracking != lb.TrackingMinimal {
			continue // a balancer can't know UDP flows that it has not seen
		}
		t.Run(name, func(t *testing.T) {
			p := newPeers(t, svc, rand.New(rand.NewPCG(fuzzrand.Seed(t), 0)))
			for _, b := range p.all {
				p.join(b)
			}
			p.wantOwnSlots()
			for i := range p.clients {
				p.homes[i] = p.send(p.any(), i, dataplanetest.Opening)
			}
			followed := 0
			for range changes {
				p.change()
				for range 3 * p.clients {
					packets++
					followed += p.wantHome(p.random.IntN(p.clients))
				}
			}
			if followed == 0 { // some changes take every flow's backend, but the first takes one backend
				t.Error("no packet of a living flow was sent")
			}
			runs++
		})
	}
	fuzzrand.Covered(t, runs, packets)
}

func newPeers(t *testing.T, svc lb.Service, random *rand.Rand) *peers {
	p := &peers{t: t, random: random, clients: 40, homes: map[int]netip.AddrPort{}}
	for range 3 {
		b := newBalanced(t, svc)
		for _, id := range b.shape(p.clients, 9).Backends {
			if len(p.present) < 9 {
				p.backends = append(p.backends, dataplanetest.Backend{ID: id, Weight: 1, Usable: true})
				p.present = append(p.present, len(p.present)%3 > 0)
			}
		}
		p.all = append(p.all, b)
	}
	return p
}

func (p *peers) any() *balanced { return p.all[p.random.IntN(len(p.all))] }

func (p *peers) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *peers) usable(id netip.AddrPort) bool {
	return slices.ContainsFunc(p.backends, func(b dataplanetest.Backend) bool { return b.ID == id && b.Usable })
}

func (p *peers) update(b *balanced) {
	p.t.Helper()
	var present []dataplanetest.Backend
	for i, one := range p.backends {
		if p.present[i] {
			present = append(present, one)
		}
	}
	p.must(b.Update(present, p.usable))
}

// join gives a balancer a past of its own, in which backends come in an order of
// its own, and which is over when it has the present backends.
func (p *peers) join(b *balanced) {
	var early []dataplanetest.Backend
	for _, i := range p.random.Perm(len(p.backends))[:5] {
		early = append(early, p.backends[i])
		p.must(b.Update(early, p.usable))
	}
	p.update(b)
	p.must(b.Pass(dataplanetest.Idle + time.Hour))
	p.must(b.Sweep())
	if state, err := b.State(); err != nil || state.Unstable > 0 {
		p.t.Fatalf("state %+v after everything was quiet (%v)", state, err)
	}
}

// wantOwnSlots checks that there is something to test.
func (p *peers) wantOwnSlots() {
	slots := func(b *balanced) map[lb.BackendID]uint16 {
		return slotNumbers(b.plane.services[b.service.VIP].now.slots)
	}
	first := slots(p.all[0])
	for _, b := range p.all[1:] {
		for id, n := range slots(b) {
			if first[id] != n {
				return
			}
		}
	}
	p.t.Log("by chance all balancers have the same slots")
}

// change changes a backend, for all balancers, or restarts one of them. So
// little time passes that no flow is idle in the end.
func (p *peers) change() {
	i := p.random.IntN(len(p.backends))
	switch p.random.IntN(6) {
	case 0, 1:
		p.present[i] = !p.present[i]
	case 2:
		p.backends[i].Weight = p.random.IntN(4)
	case 3:
		p.backends[i].Usable = !p.backends[i].Usable
	case 4:
		p.must(p.any().Restart())
	}
	for _, b := range p.all {
		p.update(b)
		p.must(b.Pass(dataplanetest.Idle / 30))
		p.must(b.Sweep())
	}
	for i, home := range p.homes {
		if !p.usable(home) {
			delete(p.homes, i) // it is lost with its backend
		}
	}
}

func (p *peers) send(b *balanced, flow int, phase dataplanetest.Phase) netip.AddrPort {
	p.t.Helper()
	id, _, err := b.Send(flow, phase)
	p.must(err)
	return id
}

// wantHome sends a flow's packet, if its backend still lives, to any balancer. It
// returns how many packets it sent.
func (p *peers) wantHome(flow int) int {
	p.t.Helper()
	home, lives := p.homes[flow]
	if !lives {
		return 0
	}
	if got := p.send(p.any(), flow, dataplanetest.Open); got != home {
		p.t.Fatalf("flow %d went to %s, before to %s", flow, got, home)
	}
	return 1
}

// A restart changes no decision: neither before the new agent has got the
// service nor after, with flows that are recorded, flows that only the ring's
// past knows and flows of stable entries.
func TestRestartMovesNoFlow(t *testing.T) {
	for name, svc := range historyServices() {
		t.Run(name, func(t *testing.T) {
			begin, goOn, known := dataplanetest.Opening, dataplanetest.Open, 2
			if svc.Protocol == lb.UDP {
				begin, goOn, known = dataplanetest.Datagram, dataplanetest.Datagram, 1 // all have to be learned
			}
			p := single(t, svc, 60, 6, 0, 1, 2, 3, 4, 5)
			b := p.all[0]
			p.begin(begin)
			p.present[0], p.present[5] = false, false
			p.update(b)
			p.wantHomes(known, goOn)
			p.must(b.Pass(dataplanetest.Learn))
			p.update(b)

			p.must(b.Restart())
			p.wantHomes(3, goOn)
			p.update(b)
			p.wantHomes(1, goOn)
			p.must(b.plane.Prune(t.Context(), []lb.VIP{svc.VIP}))
			p.must(b.Pass(dataplanetest.Idle - time.Minute))
			p.must(b.Sweep())
			p.wantHomes(1, goOn)
		})
	}
}

// wantHomes sends a packet of every nth flow to the first balancer.
func (p *peers) wantHomes(nth int, phase dataplanetest.Phase) {
	p.t.Helper()
	for i := 0; i < len(p.homes); i += nth {
		if got := p.send(p.all[0], i, phase); got != p.homes[i] {
			p.t.Fatalf("flow %d went to %s, want %s", i, got, p.homes[i])
		}
	}
}

// A balancer that joins others sends their flows where they do, although it reaches its backends one
// after another. Once it has had a packet, or some time has passed, changes move no flow any more.
func TestStart(t *testing.T) {
	for name, svc := range historyServices() {
		if svc.Tracking != lb.TrackingMinimal {
			continue
		}
		first, next := dataplanetest.Opening, dataplanetest.Open
		if svc.Learn > 0 {
			first, next = dataplanetest.Datagram, dataplanetest.Datagram
		}
		for variant, test := range map[string]struct {
			between  func(p *peers)
			unstable bool
		}{
			"no packet": {func(*peers) {}, false},
			"a packet":  {func(p *peers) { p.send(p.all[0], 0, first) }, true},
			"later":     {func(p *peers) { p.must(p.all[0].Pass(startTime)) }, true},
		} {
			t.Run(name+"/"+variant, func(t *testing.T) {
				others := single(t, svc, 60, 3, 0, 1, 2)
				others.begin(first)
				joins := single(t, svc, 60, 3)
				joins.all[0].plane.startTime = startTime
				joins.present = others.present
				for i := range joins.backends {
					joins.backends[i].Usable = i == 2
				}
				joins.must(joins.all[0].plane.Delete(t.Context(), svc.VIP)) // it was there before
				joins.update(joins.all[0])
				test.between(joins)
				for i := range joins.backends {
					joins.backends[i].Usable = true
					joins.update(joins.all[0])
				}
				state, err := joins.all[0].State()
				joins.must(err)
				if unstable := state.Unstable > 0; unstable != test.unstable {
					t.Errorf("%d entries are unstable", state.Unstable)
				}
				moved := map[int]netip.AddrPort{}
				for i, home := range others.homes {
					if at := joins.send(joins.all[0], i, next); at != home {
						moved[i] = at
					}
				}
				if !test.unstable && len(moved) > 0 {
					t.Errorf("flows moved: %v", moved)
				}
			})
		}
	}
}
