// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// The times of names.
const (
	// minTTL and maxTTL bound how long an answer is used before the question is asked again, whatever its TTL:
	// the rate of queries has a bound, and so has the time for which an address is used that another server gets.
	minTTL, maxTTL = time.Second, 10 * time.Second
	// lasting is how long answers have to be that there is no such name, or no record, until that counts.
	lasting = 30 * time.Second
	// A record has left when minMisses answers in holdTime lack it: its backend is drained for drainTime, and then
	// removed. Where records come back, as each answer has only a part of them, the time is rotationHold, until
	// that hasn't happened for rotationTime.
	minMisses                  = 3
	holdTime, drainTime        = 5 * time.Second, 5 * time.Minute
	rotationHold, rotationTime = time.Minute, 10 * time.Minute
	// maxFailures is the number of questions without an answer after which no more are asked in a round.
	maxFailures = 3
)

// names follows the backends of one service in DNS.
type names struct {
	source.Follow
	service lb.Service
	ask     func(ctx context.Context, q question, overTCP bool) (*answer, error)
	lookups map[question]*lookup
	// held are all backends, drained ones too; rotated is when one last came back.
	held    map[lb.BackendID]*heldBackend
	rotated time.Time
	// answered is set after the first answer.
	answered bool

	// A round asks questions that are due: since began, used has the questions on which the backends depend, fresh says that
	// one was answered, and failures counts those that weren't.
	began    time.Time
	used     map[question]bool
	fresh    bool
	failures int
}

// lookup is a question's last answer, which is used until there is another one.
type lookup struct {
	known   bool
	records []record
	// due is when the question is asked again; err is why it wasn't answered, none since when there are no records.
	due, none time.Time
	err       error
}

// heldBackend is a backend that an answer has had.
type heldBackend struct {
	lb.Backend
	// missing is since when answers lack it, misses their number.
	missing time.Time
	misses  int
	drained bool
}

// newNames returns the names of a service that had these backends.
func newNames(f source.Follow, s lb.Service, ask func(context.Context, question, bool) (*answer, error), earlier []lb.Backend) *names {
	n := &names{Follow: f, service: s, ask: ask, lookups: map[question]*lookup{}, held: map[lb.BackendID]*heldBackend{}}
	for _, b := range earlier {
		n.held[b.ID()] = &heldBackend{Backend: b}
	}
	return n
}

// follow reports answers until ctx ends.
func (n *names) follow(ctx context.Context, report source.ReportBackends) {
	for ctx.Err() == nil {
		n.began, n.used, n.fresh, n.failures = time.Now(), map[question]bool{}, false, 0
		current, problems, err := n.backends(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			report(nil, nil, err)
		default:
			n.answered = true
			report(n.merge(current), problems, nil)
		}
		next := n.began.Add(maxTTL)
		maps.DeleteFunc(n.lookups, func(q question, l *lookup) bool {
			if n.used[q] && l.due.Before(next) {
				next = l.due
			}
			return !n.used[q]
		})
		select {
		case <-ctx.Done():
		case <-time.After(max(minTTL, time.Until(next))):
		}
	}
}

// backends returns the backends of the last answers, and the problems of others; or why there is no answer.
func (n *names) backends(ctx context.Context) (current map[lb.BackendID]lb.Backend, problems []string, err error) {
	name, records := absolute(n.DNS), []record{{target: absolute(n.DNS), port: cmp.Or(n.Number, n.service.Port), weight: 1}}
	if n.SRV {
		root := n.lookup(ctx, question{name, dnsmessage.TypeSRV})
		if records = shares(root.records); root.err != nil {
			return nil, nil, root.err
		}
	}
	current = map[lb.BackendID]lb.Backend{}
	for _, r := range records {
		all, failed := n.addresses(ctx, r.target)
		if failed != nil && n.SRV && n.answered {
			problems = append(problems, failed.Error())
		} else {
			err = errors.Join(err, failed)
		}
		for _, a := range all {
			if id := netip.AddrPortFrom(a, r.port); !current[id].Address.IsValid() {
				current[id] = lb.Backend{Address: a, Port: r.port, Weight: int(r.weight), Backup: r.priority > 0}
			}
		}
	}
	if len(current) == 0 {
		problems = append(problems, name+" has no records")
	}
	return current, problems, err
}

// addresses returns the addresses of a name: of the VIP's family; or, in modes that don't translate, of the other one
// if there is none. An error is why they may be old.
func (n *names) addresses(ctx context.Context, name string) (all []netip.Addr, err error) {
	kinds := []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA}
	if n.service.Address.Is6() {
		slices.Reverse(kinds)
	}
	if n.service.Forward.Translates() {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		l := n.lookup(ctx, question{name, kind})
		for _, r := range l.records {
			all = append(all, r.address)
		}
		if err = l.err; len(all) > 0 || err != nil && l.none.IsZero() {
			break
		}
	}
	return all, err
}

// lookup returns the last answer to a question, which it asks if that is due. If known records are missing in the
// answer, it asks once more by TCP: some servers answer a part only by UDP, and don't say so.
func (n *names) lookup(ctx context.Context, q question) *lookup {
	l := n.lookups[q]
	if l == nil {
		l = &lookup{err: errors.New("DNS server not queried yet")}
		n.lookups[q] = l
	}
	asked := n.used[q]
	if n.used[q] = true; asked || n.began.Before(l.due) || n.failures >= maxFailures {
		return l
	}
	a, err := n.ask(ctx, q, false)
	if err == nil && slices.ContainsFunc(l.records, func(r record) bool { return !slices.Contains(a.records, r) }) {
		if whole, err := n.ask(ctx, q, true); err == nil {
			a = whole
		}
	}
	if l.take(q, a, err); err != nil {
		n.failures++
	} else {
		n.fresh = true
	}
	return l
}

// take takes an answer, or the reason for which there is none. That there are no records counts if it lasts.
func (l *lookup) take(q question, a *answer, err error) {
	now := time.Now()
	if err != nil {
		l.err, l.none, l.due = err, time.Time{}, now.Add(minTTL)
		return
	}
	ttl := min(max(minTTL, a.ttl), maxTTL)
	l.due = now.Add(max(minTTL, ttl-rand.N(ttl/8))) // names that were asked together aren't for ever
	if l.err = nil; len(a.records) > 0 {
		l.known, l.records, l.none = true, a.records, time.Time{}
		return
	}
	if l.none.IsZero() {
		l.none = now
	}
	if now.Sub(l.none) >= lasting {
		l.known, l.records = true, nil
	} else if !l.known {
		l.err = errors.New(q.name + ": " + a.why)
	}
}

// merge returns the backends of answers, and those that have left and are drained.
func (n *names) merge(current map[lb.BackendID]lb.Backend) (all []lb.Backend) {
	for id, b := range current {
		if h := n.held[id]; h != nil && h.misses > 0 && h.misses < minMisses {
			n.rotated = n.began
		}
		n.held[id] = &heldBackend{Backend: b}
	}
	for id, h := range n.held {
		if _, is := current[id]; !is && n.leave(h) {
			delete(n.held, id)
			continue
		}
		if h.drained {
			h.Weight = 0
		}
		all = append(all, h.Backend)
	}
	return lb.SortBackends(all)
}

// leave records that answers lack a backend, and reports whether it is to be removed.
func (n *names) leave(h *heldBackend) (gone bool) {
	hold := holdTime
	if n.began.Sub(n.rotated) < rotationTime {
		hold = rotationHold
	}
	if h.missing.IsZero() {
		h.missing = n.began
	}
	if n.fresh {
		h.misses++
	}
	lacking := n.began.Sub(h.missing)
	if h.drained = h.drained || h.misses >= minMisses && lacking >= hold; !h.drained {
		for q := range n.used { // soon, to know whether it is missing again
			n.lookups[q].due = n.began.Add(minTTL)
		}
	}
	return h.drained && lacking >= hold+drainTime
}

// shares returns SRV records with weights of backends, the best ones with priority 0: the others are for the time when
// none of these serves (RFC 2782). Weights are shares among the best ones, or among the others.
func shares(records []record) (all []record) {
	records = slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.target == "." }) // "not available"
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Compare(a.priority, b.priority) })
	best := slices.IndexFunc(records, func(r record) bool { return r.priority > records[0].priority })
	if best < 0 {
		best = len(records)
	}
	for i, group := range [][]record{records[:best], records[best:]} {
		least, most := math.MaxInt, 0
		for _, r := range group {
			least, most = min(least, int(r.weight)), max(most, int(r.weight))
		}
		for _, r := range group {
			if r.priority = uint16(i); least == most {
				r.weight = 1
			} else {
				r.weight = uint16(max(1, (int(r.weight)*lb.MaxWeight+most/2)/most))
			}
			all = append(all, r)
		}
	}
	return all
}
