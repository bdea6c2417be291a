// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// script answers questions as a test wants: "A a.example." has the records "10.0.0.1 10.0.0.2", "SRV s.example." has
// "priority weight port target" between commas. A name without an entry doesn't exist.
type script struct {
	mu      sync.Mutex
	records map[string]string
	ttl     time.Duration
	// odd answers a question instead, if it returns true.
	odd func(q string, overTCP bool) (*answer, bool, error)
	// asked counts questions.
	asked map[string]int
}

func (s *script) set(q, records string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[q] = records
}

func (s *script) setOdd(odd func(q string, overTCP bool) (*answer, bool, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = odd
}

func (s *script) ask(_ context.Context, q question, overTCP bool) (*answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimPrefix(q.kind.String(), "Type") + " " + q.name
	s.asked[name]++
	if s.odd != nil {
		if a, is, err := s.odd(name, overTCP); is {
			return a, err
		}
	}
	return s.answer(name), nil
}

// answer is the scripted answer.
func (s *script) answer(name string) *answer {
	text, exists := s.records[name]
	a := &answer{ttl: s.ttl, why: "no records"}
	if !exists {
		a.why = "no such name"
	}
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		var r record
		if _, err := fmt.Sscan(one, &r.priority, &r.weight, &r.port, &r.target); err != nil {
			r = record{address: netip.MustParseAddr(strings.TrimSpace(one))}
		}
		a.records = append(a.records, r)
	}
	return a
}

// failing is an odd answer.
func failing(string, bool) (*answer, bool, error) { return nil, true, errors.New("SERVFAIL") }

// reports are the reports about a service.
type reports struct {
	mu sync.Mutex
	seen
}

// seen is the result of reports.
type seen struct {
	backends string
	problems []string
	err      error
	// changes counts changes of backends, answers all answers.
	changes, answers int
}

func (s *reports) report(backends []lb.Backend, problems []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err != nil {
		return
	}
	s.answers++
	s.problems = problems
	if text := show(backends); text != s.backends {
		s.changes++
		s.backends = text
	}
}

// show writes backends as "10.0.0.1:80*1 10.0.0.2:80*256b".
func show(backends []lb.Backend) string {
	var all []string
	for _, b := range backends {
		text := fmt.Sprintf("%s*%d", b.ID(), b.Weight)
		if b.Backup {
			text += "b"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// followerOfNames follows names in a bubble, in which time passes at once.
type followerOfNames struct {
	*testing.T
	*script
	reports reports
}

// seen returns the result of reports until now.
func (f *followerOfNames) seen() seen {
	f.reports.mu.Lock()
	defer f.reports.mu.Unlock()
	return f.reports.seen
}

// inBubble follows names of a service of the mode nat, or as set up.
func inBubble(t *testing.T, f source.Follow, s *script, change func(*lb.Service), earlier []lb.Backend, test func(*followerOfNames)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		service := lb.Service{Name: "web", VIP: lb.VIP{Address: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: lb.TCP}, Forward: lb.NAT}
		if change != nil {
			change(&service)
		}
		s.asked = map[string]int{}
		f2 := &followerOfNames{T: t, script: s}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { newNames(f, service, s.ask, earlier).follow(ctx, f2.reports.report) })
		synctest.Wait()
		test(f2)
		cancel()
		running.Wait()
	})
}

// after lets time pass, and compares the backends then.
func (f *followerOfNames) after(d time.Duration, want string) {
	f.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := f.seen(); got.backends != want {
		f.Errorf("after %s the backends are %q, want %q (%v %v)", d, got.backends, want, got.err, got.problems)
	}
}

var (
	ofA   = source.Follow{DNS: "a.example"}
	ofSRV = source.Follow{DNS: "_http._tcp.Example", SRV: true}
)

const srv = "SRV _http._tcp.example."

// While the resolver fails in any way the last answer stays, for any time.
func TestFailuresKeepAnswer(t *testing.T) {
	s := &script{records: map[string]string{"A a.example.": "10.0.0.1,10.0.0.2"}, ttl: 5 * time.Second}
	inBubble(t, ofA, s, nil, nil, func(f *followerOfNames) {
		const both = "10.0.0.1:80*1 10.0.0.2:80*1"
		f.after(0, both)
		s.setOdd(failing)
		f.after(10*time.Hour, both)
		if f.seen().err == nil || f.seen().changes != 1 {
			f.Errorf("error %v, %d changes", f.seen().err, f.seen().changes)
		}
		if n := s.asked["A a.example."]; n > 10*3600+10 {
			f.Errorf("%d questions", n)
		}
		s.set("A a.example.", "10.0.0.1,10.0.0.2,10.0.0.3")
		s.setOdd(nil)
		f.after(2*time.Second, both+" 10.0.0.3:80*1")
		if f.seen().err != nil {
			f.Error(f.seen().err)
		}
	})
}

// Before the first answer there are no backends, and not none.
func TestNoFirstAnswer(t *testing.T) {
	s := &script{records: map[string]string{"A a.example.": "10.0.0.1"}, ttl: 5 * time.Second, odd: failing}
	inBubble(t, ofA, s, nil, nil, func(f *followerOfNames) {
		f.after(time.Hour, "")
		if f.seen().answers != 0 || f.seen().err == nil {
			f.Errorf("%d answers, error %v", f.seen().answers, f.seen().err)
		}
		s.setOdd(nil)
		f.after(2*time.Second, "10.0.0.1:80*1")
	})
	// Nor while one of several targets is unknown.
	s = &script{records: map[string]string{srv: "0 0 80 a.,0 0 80 b.", "A a.": "10.0.0.1", "A b.": "10.0.0.2"}, ttl: 5 * time.Second}
	s.odd = func(q string, _ bool) (*answer, bool, error) { return nil, q == "A b.", errors.New("SERVFAIL") }
	inBubble(t, ofSRV, s, nil, nil, func(f *followerOfNames) {
		f.after(time.Minute, "")
		s.setOdd(nil)
		f.after(2*time.Second, "10.0.0.1:80*1 10.0.0.2:80*1")
		// Later such a target keeps its addresses.
		s.setOdd(func(q string, _ bool) (*answer, bool, error) { return nil, q == "A b.", errors.New("SERVFAIL") })
		s.set(srv, "0 0 80 a.,0 0 80 b.,0 0 80 c.")
		s.set("A c.", "10.0.0.3")
		f.after(time.Hour, "10.0.0.1:80*1 10.0.0.2:80*1 10.0.0.3:80*1")
		if f.seen().err != nil || len(f.seen().problems) != 1 {
			f.Errorf("error %v, problems %q", f.seen().err, f.seen().problems)
		}
	})
}

// "No such name" and empty answers count once they last, and then backends are drained first.
func TestNegativeAnswers(t *testing.T) {
	for name, records := range map[string]map[string]string{"no such name": {}, "empty": {"A a.example.": ""}} {
		s := &script{records: map[string]string{"A a.example.": "10.0.0.1,10.0.0.2"}, ttl: 0}
		inBubble(t, ofA, s, nil, nil, func(f *followerOfNames) {
			const both = "10.0.0.1:80*1 10.0.0.2:80*1"
			n := 0
			none := &answer{why: name}
			s.setOdd(func(string, bool) (*answer, bool, error) { n++; return none, n%6 == 0, nil })
			f.after(10*time.Minute, both)
			if f.seen().changes != 1 || len(f.seen().problems) != 0 {
				f.Errorf("%s: %d changes by single answers, problems %q", name, f.seen().changes, f.seen().problems)
			}
			s.setOdd(func(string, bool) (*answer, bool, error) { return none, true, nil })
			f.after(lasting-time.Second, both)
			f.after(holdTime+3*time.Second, "10.0.0.1:80*0 10.0.0.2:80*0")
			if len(f.seen().problems) != 1 {
				f.Errorf("%s: problems %q", name, f.seen().problems)
			}
			f.after(drainTime+maxTTL, "")
			s.setOdd(nil)
			f.after(maxTTL, both)
		})
		// As the first answer, too.
		s = &script{records: records}
		inBubble(t, ofA, s, nil, nil, func(f *followerOfNames) {
			f.after(lasting-2*time.Second, "")
			if f.seen().answers != 0 || f.seen().err == nil {
				f.Errorf("%s: %d answers, error %v", name, f.seen().answers, f.seen().err)
			}
			f.after(4*time.Second, "")
			if f.seen().answers == 0 || f.seen().err != nil || len(f.seen().problems) != 1 {
				f.Errorf("%s: %d answers, error %v, problems %q", name, f.seen().answers, f.seen().err, f.seen().problems)
			}
		})
	}
}

// A record that leaves is drained and then removed; one that comes back is used again.
func TestRecordLeaves(t *testing.T) {
	s := &script{records: map[string]string{"A a.example.": "10.0.0.1,10.0.0.2"}, ttl: 10 * time.Minute}
	inBubble(t, ofA, s, nil, nil, func(f *followerOfNames) {
		s.set("A a.example.", "10.0.0.2,10.0.0.3")
		f.after(maxTTL, "10.0.0.1:80*1 10.0.0.2:80*1 10.0.0.3:80*1") // whatever the TTL
		f.after(holdTime+time.Second, "10.0.0.1:80*0 10.0.0.2:80*1 10.0.0.3:80*1")
		f.after(drainTime-time.Minute, "10.0.0.1:80*0 10.0.0.2:80*1 10.0.0.3:80*1")
		f.after(time.Minute+2*maxTTL, "10.0.0.2:80*1 10.0.0.3:80*1")
		s.set("A a.example.", "10.0.0.3")
		f.after(maxTTL+holdTime+time.Second, "10.0.0.2:80*0 10.0.0.3:80*1")
		s.set("A a.example.", "10.0.0.2,10.0.0.3")
		f.after(maxTTL, "10.0.0.2:80*1 10.0.0.3:80*1")
	})
	// An earlier agent's backends that have left meanwhile are drained too.
	earlier := []lb.Backend{{Address: netip.MustParseAddr("10.0.0.9"), Port: 80, Weight: 1}}
	inBubble(t, ofA, &script{records: map[string]string{"A a.example.": "10.0.0.3"}}, nil, earlier, func(f *followerOfNames) {
		f.after(0, "10.0.0.3:80*1 10.0.0.9:80*1")
		f.after(holdTime+2*time.Second, "10.0.0.3:80*1 10.0.0.9:80*0")
		f.after(drainTime+maxTTL, "10.0.0.3:80*1")
	})
}

// Of a server that answers three of twelve at random all are known after a minute, and none leaves later. If it has all
// of them by TCP they are known at once.
func TestRotatingAnswers(t *testing.T) {
	var all []string
	for i := range 12 {
		all = append(all, fmt.Sprintf("10.0.0.%d", 10+i))
	}
	var want strings.Builder
	for _, a := range all {
		fmt.Fprintf(&want, " %s:80*1", a)
	}
	for _, complete := range []bool{false, true} {
		s := &script{records: map[string]string{"A a.example.": strings.Join(all, ",")}}
		r := rand.New(rand.NewPCG(1, 0))
		s.odd = func(q string, overTCP bool) (*answer, bool, error) {
			a := s.answer(q)
			r.Shuffle(len(a.records), func(i, j int) { a.records[i], a.records[j] = a.records[j], a.records[i] })
			a.records = a.records[:3]
			if overTCP {
				return nil, !complete, errors.New("connection refused")
			}
			return a, true, nil
		}
		inBubble(t, ofA, s, nil, nil, func(f *followerOfNames) {
			first := time.Minute
			if complete {
				first = 2 * maxTTL
			}
			f.after(first, want.String()[1:])
			changes := f.seen().changes
			f.after(5*time.Minute, want.String()[1:])
			if f.seen().changes != changes {
				f.Errorf("%d changes after a minute, complete by TCP: %v", f.seen().changes-changes, complete)
			}
			// Two that have left don't stay.
			s.set("A a.example.", strings.Join(all[:10], ","))
			f.after(2*rotationHold, strings.ReplaceAll(strings.ReplaceAll(want.String()[1:], "0.20:80*1", "0.20:80*0"), "0.21:80*1", "0.21:80*0"))
		})
	}
}

// No answer has questions asked more often than once in minTTL.
func TestQueryRate(t *testing.T) {
	targets := map[string]string{srv: "0 0 80 a.,0 0 80 b.", "A a.": "10.0.0.1", "A b.": ""}
	for name, s := range map[string]*script{
		"TTL 0": {records: map[string]string{"A a.example.": "10.0.0.1"}}, "no such name": {records: map[string]string{}},
		"failure": {odd: failing, records: map[string]string{}}, "SRV": {records: targets},
	} {
		from := ofA
		if name == "SRV" {
			from = ofSRV
		}
		inBubble(t, from, s, nil, nil, func(f *followerOfNames) {
			time.Sleep(time.Hour)
			synctest.Wait()
			for q, n := range s.asked {
				if n > 3600+1 || n < 300 {
					f.Errorf("%s: %s asked %d times in an hour", name, q, n)
				}
			}
		})
	}
}

// SRV records of the lowest priority serve; weights are shares.
func TestShares(t *testing.T) {
	for records, want := range map[string]string{
		"0 0 80 a.,0 0 80 b.,0 0 80 c.":            "10.0.0.1:80*1 10.0.0.2:80*1 10.0.0.3:80*1",
		"0 7 80 a.,0 7 80 b.":                      "10.0.0.1:80*1 10.0.0.2:80*1",
		"0 10 80 a.,0 20 80 b.,0 30 80 c.":         "10.0.0.1:80*85 10.0.0.2:80*171 10.0.0.3:80*256",
		"0 65535 80 a.,0 1 80 b.":                  "10.0.0.1:80*256 10.0.0.2:80*1",
		"0 1 80 a.,0 0 80 b.":                      "10.0.0.1:80*256 10.0.0.2:80*1",
		"20 5 80 a.,10 0 80 b.,30 10 80 c.":        "10.0.0.1:80*128b 10.0.0.2:80*1 10.0.0.3:80*256b",
		"0 1 8080 a.,0 1 8081 a.":                  "10.0.0.1:8080*1 10.0.0.1:8081*1", // two at one address
		"0 1 80 a.,0 1 80 .":                       "10.0.0.1:80*1",
		"1 1 80 twin.,0 1 80 a.":                   "10.0.0.1:80*1",
		"0 0 80 six.,0 0 80 both.,0 0 80 missing.": "10.0.0.4:80*1", // nat: only IPv4
	} {
		s := &script{ttl: 5 * time.Second, records: map[string]string{
			srv: records, "A a.": "10.0.0.1", "A b.": "10.0.0.2", "A c.": "10.0.0.3", "A twin.": "10.0.0.1",
			"A six.": "", "AAAA six.": "fd00::1", "A both.": "10.0.0.4", "AAAA both.": "fd00::4",
		}}
		inBubble(t, ofSRV, s, nil, nil, func(f *followerOfNames) { f.after(lasting+maxTTL, want) })
	}
}

// Modes that don't translate use one family of each name: the VIP's if there is one, also while another question fails.
func TestFamilies(t *testing.T) {
	for _, test := range []struct{ name, vip, want string }{
		{"both.", "10.1.1.1", "10.0.0.4:80*1"},
		{"both.", "fd00:1::1", "[fd00::4]:80*1"},
		{"six.", "10.1.1.1", "[fd00::1]:80*1"},
		{"six.", "fd00:1::1", "[fd00::1]:80*1"},
		{"four.", "fd00:1::1", "10.0.0.1:80*1"},
	} {
		s := &script{ttl: 5 * time.Second, records: map[string]string{
			"A six.": "", "AAAA six.": "fd00::1", "A four.": "10.0.0.1", "AAAA four.": "", "A both.": "10.0.0.4", "AAAA both.": "fd00::4",
		}}
		tunnel := func(s *lb.Service) { s.Forward, s.Address = lb.GUE, netip.MustParseAddr(test.vip) }
		inBubble(t, source.Follow{DNS: test.name}, s, tunnel, nil, func(f *followerOfNames) {
			f.after(0, test.want)
			s.setOdd(func(string, bool) (*answer, bool, error) {
				return &answer{why: "no records"}, rand.IntN(8) == 0, nil
			})
			f.after(time.Hour, test.want)
			if f.seen().changes != 1 {
				f.Errorf("%s for %s: %d changes", test.name, test.vip, f.seen().changes)
			}
			s.setOdd(nil)
			f.after(maxTTL, test.want)
		})
	}
	// A question of the VIP's family that fails isn't answered by the other family.
	s := &script{records: map[string]string{"A both.": "10.0.0.4", "AAAA both.": "fd00::4"}}
	s.odd = func(q string, _ bool) (*answer, bool, error) {
		return nil, strings.HasPrefix(q, "A "), errors.New("SERVFAIL")
	}
	inBubble(t, source.Follow{DNS: "both"}, s, func(s *lb.Service) { s.Forward = lb.GUE }, nil, func(f *followerOfNames) { f.after(time.Hour, "") })
}

// Of many questions only some are asked while the server is away.
func TestServerAway(t *testing.T) {
	s := &script{records: map[string]string{}, ttl: 5 * time.Second}
	var records []string
	for i := range 100 {
		records = append(records, fmt.Sprintf("0 0 80 t%d.", i))
		s.records[fmt.Sprintf("A t%d.", i)] = fmt.Sprintf("10.0.1.%d", i)
	}
	s.records[srv] = strings.Join(records, ",")
	inBubble(t, ofSRV, s, nil, nil, func(f *followerOfNames) {
		all := f.seen().backends
		clear(s.asked)
		s.setOdd(failing)
		f.after(20*time.Second, all)
		questions := 0
		for _, n := range s.asked {
			questions += n
		}
		if questions > 20*maxFailures {
			f.Errorf("%d questions in 20 seconds", questions)
		}
	})
	if q := (question{"a.", dnsmessage.TypeA}); !slices.Contains([]question{q}, q) {
		t.Error("questions aren't comparable")
	}
}
