// SPDX-License-Identifier: Apache-2.0

package alloc_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/test/fuzzrand"
)

// history is a random one: an allocator and the model that it has to agree with.
type history struct {
	random *rand.Rand
	real   *alloc.Allocator
	model  *model
	trace  []string
	// lost counts addresses that restarts took from an owner, seen how often claims
	// came out in which way.
	lost int
	seen map[string]int
}

// fuzzDuration is how long the histories run unless FAIRLEAD_FUZZ says otherwise.
const fuzzDuration = 3 * time.Second

// repeat runs random histories of so many steps, for FAIRLEAD_FUZZ (a duration such as 60s).
func repeat(t *testing.T, steps int, run func(*rand.Rand) error) {
	t.Helper()
	seed, long := fuzzrand.Seed(t), fuzzrand.Duration(t, fuzzDuration)
	histories := 0
	for begin := time.Now(); histories < 20 || time.Since(begin) < long; seed++ {
		if err := run(rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatalf("FAIRLEAD_SEED=%d: %v", seed, err)
		}
		histories++
	}
	fuzzrand.Covered(t, histories, histories*steps)
}

// After random creates, changes, deletes, edits of pools and restarts each owner has the addresses that
// the model gives it.
func TestClaimsMatchModel(t *testing.T) {
	const steps = 150
	seen, lost := map[string]int{}, 0
	repeat(t, steps, func(random *rand.Rand) error {
		h := newHistory(random)
		err := h.run(steps)
		for outcome, n := range h.seen {
			seen[outcome] += n
		}
		lost += h.lost
		return err
	})
	t.Logf("claims came out %v; %d addresses were lost in restarts", seen, lost)
	for _, outcome := range []string{granted, alloc.BadPool, alloc.BadFamily, alloc.NotInPool, alloc.Taken, alloc.Retained, none} {
		if seen[outcome] == 0 {
			t.Errorf("no claim came out as %q: the histories don't try everything", outcome)
		}
	}
}

func FuzzAllocate(f *testing.F) {
	for _, text := range []string{"", "claims, and what comes of them", "\x00\x00\x00\x00\x00\x00\x00\x00"} {
		f.Add([]byte(text))
	}
	for seed := range byte(8) {
		data := make([]byte, 400)
		if _, err := rand.NewChaCha8([32]byte{seed}).Read(data); err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newHistory(fuzzrand.New(data))
		if err := h.run(20 + min(len(data)/8, 200)); err != nil {
			t.Fatal(err)
		}
	})
}

func newHistory(random *rand.Rand) *history {
	return &history{
		random: random,
		real:   alloc.New(),
		model:  &model{objects: map[alloc.Owner]*object{}, retained: map[netip.Addr]string{}},
		seen:   map[string]int{},
	}
}

// run makes steps and compares after each.
func (h *history) run(steps int) error {
	h.setPools()
	for range steps {
		if err := cmp.Or(h.step(), h.agree()); err != nil {
			return fmt.Errorf("%w\nafter\n%s", err, lines(h.trace))
		}
	}
	if err := cmp.Or(h.drain(), h.agree()); err != nil {
		return fmt.Errorf("%w\nin the end, after\n%s", err, lines(h.trace))
	}
	return nil
}

func (h *history) step() error {
	switch n := h.random.IntN(40); {
	case n < 24:
		return h.claim(h.spec(h.owner()))
	case n < 28: // the same again
		if o := h.model.objects[h.owner()]; o != nil {
			return h.claim(o.spec)
		}
	case n < 34:
		owner := h.owner()
		h.note("release %s", owner)
		held := h.real.Of(owner)
		h.real.Release(owner)
		delete(h.model.objects, owner)
		h.retain(owner, held)
	case n < 35:
		h.unretain()
	case n < 37:
		h.setPools()
	case n < 39:
		return h.restart()
	default:
		return h.drain()
	}
	return nil
}

// retain retains, often, the addresses that an owner had and no other has.
func (h *history) retain(owner alloc.Owner, held []alloc.Address) {
	for _, a := range held {
		free := len(h.model.others(owner, a.Address)) == 0
		if h.random.IntN(3) == 0 {
			continue
		}
		h.note("retain %s for %s", a.Address, owner.Namespace)
		if h.real.Reserve(a.Address, retention(owner.Namespace)) != free {
			panic("an address with an owner is retained")
		}
		if free {
			h.model.retained[a.Address] = owner.Namespace
		}
	}
}

// retention is the reservation of an address that owners of a namespace get.
func retention(namespace string) alloc.Reservation {
	return alloc.Reservation{For: alloc.Owner{Namespace: namespace}, Namespace: true, Err: &alloc.Error{Reason: alloc.Retained}}
}

func retainedFor(a *alloc.Allocator, address netip.Addr) string {
	r, _ := a.Reserved(address)
	return r.For.Namespace
}

// unretain ends some retentions.
func (h *history) unretain() {
	for _, a := range slices.SortedFunc(maps.Keys(h.model.retained), netip.Addr.Compare) {
		if h.random.IntN(2) == 0 {
			h.note("unretain %s", a)
			h.real.Unreserve(a)
			delete(h.model.retained, a)
		}
	}
}

func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

// claim claims twice, of which the second one must change nothing.
func (h *history) claim(r alloc.Request) error {
	h.note("claim %+v", r)
	o := h.model.objects[r.Owner]
	if o == nil {
		o = &object{created: time.Unix(int64(h.random.IntN(4)), 0)}
		h.model.objects[r.Owner] = o
	}
	want, lacking, outcome := h.model.claim(r)
	o.spec, o.status = r, want
	for _, a := range want {
		delete(h.model.retained, a.Address)
	}
	h.seen[outcome]++
	for range 2 {
		got, err := h.real.Claim(r)
		h.note("     -> %v %v, want %v %s", got, err, want, outcome)
		if !slices.Equal(got.Addresses, want) {
			return fmt.Errorf("claim of %s got %v, want %v", r.Owner, got.Addresses, want)
		}
		if (got.Missing != nil) != lacking || outcomeOf(err) != outcome {
			return fmt.Errorf("claim of %s: %s, want %s, lacking %t", r.Owner, answer(got, err), outcome, lacking)
		}
	}
	return nil
}

func outcomeOf(err error) string {
	failed, ok := errors.AsType[*alloc.Error](err)
	switch {
	case err == nil:
		return granted
	case !ok:
		return err.Error()
	case failed.Reason == alloc.Exhausted || failed.Reason == alloc.NoPool:
		return none
	}
	return failed.Reason
}

// setPools edits the pools: others, fewer, more, larger, smaller.
func (h *history) setPools() {
	h.model.pools = h.pools()
	for _, o := range h.model.objects {
		for i, was := range o.status {
			o.status[i], _ = label(h.model.pools, was)
		}
	}
	h.real.SetPools(h.realPools())
}

func (h *history) realPools() (pools []alloc.Pool) {
	for _, p := range h.model.pools {
		pools = append(pools, p.Pool)
	}
	h.note("pools %v", pools)
	return pools
}

// restart builds another allocator from the objects' statuses, some of which were
// changed or deleted during the outage.
func (h *history) restart() error {
	h.note("restart")
	var holdings []alloc.Holding
	quiet := h.random.IntN(2) == 0
	for _, owner := range h.sorted() {
		o := h.model.objects[owner]
		switch n := h.random.IntN(8); {
		case n == 0 && !quiet:
			h.note("    deleted %s", owner)
			delete(h.model.objects, owner)
			continue
		case n == 1 && !quiet:
			fresh := h.spec(owner)
			o.spec.Ports, o.spec.Sharing = fresh.Ports, fresh.Sharing
			h.note("    changed %s to %v %v", owner, fresh.Ports, fresh.Sharing)
		}
		holdings = append(holdings, holding(o))
	}
	h.random.Shuffle(len(holdings), func(i, j int) { holdings[i], holdings[j] = holdings[j], holdings[i] })
	if !quiet {
		h.model.pools = h.pools()
	}
	h.real = alloc.New()
	h.real.SetPools(h.realPools())
	for a, namespace := range h.model.retained {
		h.real.Reserve(a, retention(namespace))
	}
	lost, conflicts := h.model.adopt(), h.real.Adopt(holdings)
	if len(conflicts) != lost || quiet && lost > 0 {
		return fmt.Errorf("restart: conflicts %v, want %d", conflicts, lost)
	}
	h.lost += lost
	return nil
}

func holding(o *object) alloc.Holding {
	held := alloc.Holding{Owner: o.spec.Owner, Created: o.created, Ports: o.spec.Ports, Sharing: o.spec.Sharing}
	for _, a := range o.status {
		held.Addresses = append(held.Addresses, a.Address)
	}
	return held
}

// drain takes all that is left of each pool and gives it back: no address is lost.
func (h *history) drain() error {
	h.note("drain")
	var probes []alloc.Owner
	held := map[netip.Addr]bool{}
	for owner := range h.model.objects {
		for _, a := range h.real.Of(owner) {
			held[a.Address] = true
		}
	}
	for a := range h.model.retained {
		held[a] = true // not the probes'
	}
	for _, p := range h.model.pools {
		for _, f := range []alloc.Family{alloc.IPv4, alloc.IPv6} {
			var left []netip.Addr
			for _, a := range p.addresses {
				if alloc.FamilyOf(a) == f && !held[a] {
					left = append(left, a)
				}
			}
			free := len(left)
			for n := 0; ; n++ {
				probe := alloc.Owner{Kind: "Probe", Namespace: p.Name, Name: fmt.Sprint(f, n)}
				r := alloc.Request{Owner: probe, Families: []alloc.Family{f}, Pools: []string{p.Name}, Pool: p.Name}
				if p.External && n < free {
					r.Wanted = left[n : n+1]
				}
				got, err := h.real.Claim(r)
				if err != nil && n == free && outcomeOf(err) == none {
					break
				}
				if err != nil || n >= free {
					return fmt.Errorf("pool %s: claim %d of the %d %s addresses that are left is %s", p.Name, n+1, free, f, outcomeOf(err))
				}
				probes = append(probes, probe)
				held[got.Addresses[0].Address] = true
			}
		}
		retained := uint64(0)
		for _, a := range p.addresses {
			if retainedFor(h.real, a) != "" {
				retained++
			}
		}
		if u := h.real.Usage(p.Name); u.IPv4.Assigned+u.IPv6.Assigned+retained != u.IPv4.Size+u.IPv6.Size {
			return fmt.Errorf("pool %s: an exhausted one has %+v", p.Name, u)
		}
	}
	for _, i := range h.random.Perm(len(probes)) {
		h.real.Release(probes[i])
	}
	return nil
}

func (h *history) sorted() (owners []alloc.Owner) {
	for owner := range h.model.objects {
		owners = append(owners, owner)
	}
	slices.SortFunc(owners, alloc.Owner.Compare)
	return owners
}

func lines(trace []string) (text string) {
	for _, line := range trace[max(len(trace)-40, 0):] {
		text += line + "\n"
	}
	return text
}
