// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
	"fairlead.io/fairlead/test/fake"
)

// service is a service at 10.1.1.n with backends 10.0.0.b.
func service(name string, n byte, backends ...byte) lb.Service {
	return fake.Service(name, fake.VIP(fmt.Sprint("10.1.1.", n)), hosts(backends)...)
}

// hosts are the addresses 10.0.0.b.
func hosts(last []byte) (addresses []string) {
	for _, b := range last {
		addresses = append(addresses, fmt.Sprint("10.0.0.", b))
	}
	return addresses
}

func set(t *testing.T, s *store.Store, services ...lb.Service) store.Snapshot {
	t.Helper()
	snapshot, err := s.Set(services)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// text prints a snapshot as "2: web@1 dns@2".
func text(s store.Snapshot) string {
	out := fmt.Sprintf("%d:", s.Revision)
	for _, e := range s.Services {
		out += fmt.Sprintf(" %s@%d", e.Service.Name, e.Revision)
	}
	return out
}

func TestRevisions(t *testing.T) {
	s := store.New()
	if got := text(s.Snapshot()); got != "0:" {
		t.Errorf("a new store has %q", got)
	}
	web, dns := service("web", 2, 1, 2), service("dns", 1, 3)
	renamed, drained := web, service("web", 2, 1, 2)
	renamed.Name = "www"
	drained.Backends[0].Weight = 0
	for _, step := range []struct {
		what     string
		services []lb.Service
		want     string
	}{
		{"the first set is a revision, even if empty", nil, "1:"},
		{"empty again", []lb.Service{}, "1:"},
		{"one", []lb.Service{web}, "2: web@2"},
		{"another before it", []lb.Service{web, dns}, "3: dns@3 web@2"},
		{"the other order", []lb.Service{dns, web}, "3: dns@3 web@2"},
		{"other order of backends", []lb.Service{dns, service("web", 2, 2, 1)}, "3: dns@3 web@2"},
		{"a backend less", []lb.Service{dns, service("web", 2, 1)}, "4: dns@3 web@4"},
		{"a weight", []lb.Service{dns, drained}, "5: dns@3 web@5"},
		{"a name", []lb.Service{dns, renamed}, "6: dns@3 www@6"},
		{"one goes", []lb.Service{renamed}, "7: www@6"},
		{"and comes back", []lb.Service{renamed, dns}, "8: dns@8 www@6"},
		{"one VIP for another", []lb.Service{renamed, service("dns", 9, 3)}, "9: www@6 dns@9"},
		{"nothing", nil, "10:"},
	} {
		got := text(set(t, s, step.services...))
		if now := text(s.Snapshot()); got != step.want || now != step.want {
			t.Errorf("%s: Set returned %q, the store has %q, want %q", step.what, got, now, step.want)
		}
	}
}

// Later changes of the caller's slices must not reach a snapshot.
func TestSnapshotImmutable(t *testing.T) {
	s := store.New()
	services := []lb.Service{service("web", 1, 2, 1)}
	snapshot := set(t, s, services...)
	if services[0].Backends[0].Address.As4()[3] != 2 {
		t.Error("Set sorted the caller's backends")
	}
	services[0].Name = "other"
	services[0].Backends[1].Weight = 7
	set(t, s, service("dns", 9))
	if svc := snapshot.Services[0].Service; text(snapshot) != "1: web@1" || svc.Backends[0].Weight != 1 {
		t.Errorf("the snapshot became %q, %+v", text(snapshot), svc)
	}
}

func TestDuplicatesRefused(t *testing.T) {
	s := store.New()
	set(t, s, service("web", 1, 1))
	for want, services := range map[string][]lb.Service{
		`vip tcp 10.1.1.7:80: services "a" and "b" have it`:                                        {service("a", 7), service("c", 2), service("b", 7)},
		`service "a": the name is taken by vip tcp 10.1.1.2:80, vip tcp 10.1.1.7:80 can't have it`: {service("a", 7), service("a", 2)},
	} {
		snapshot, err := s.Set(services)
		if err == nil || err.Error() != want || snapshot.Revision != 0 {
			t.Errorf("snapshot %q, error %v\nwant %s", text(snapshot), err, want)
		}
	}
	_, err := s.Set([]lb.Service{service("a", 1), service("b", 1), service("b", 2)})
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("error %v, want both faults", err)
	}
	if got := text(s.Snapshot()); got != "1: web@1" {
		t.Errorf("a refused set left %q", got)
	}
}

func TestWatch(t *testing.T) {
	s := store.New()
	closed := func(changed <-chan struct{}) bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	_, changed := s.Watch()
	if closed(changed) {
		t.Error("a change is announced before there is one")
	}
	set(t, s, service("web", 1))
	set(t, s, service("web", 1), service("dns", 2))
	if !closed(changed) {
		t.Error("a change is not announced")
	}
	snapshot, changed := s.Watch()
	if got, want := text(snapshot), "2: web@1 dns@2"; got != want {
		t.Errorf("the watcher got %q, want the newest %q", got, want)
	}
	set(t, s, service("dns", 2), service("web", 1))
	if _, err := s.Set([]lb.Service{service("web", 1), service("web", 2)}); err == nil {
		t.Error("a duplicate name is taken")
	}
	if closed(changed) {
		t.Error("a change is announced though nothing changed")
	}
}

// Writers and watchers at once, with -race: a watcher sees revisions grow and
// ends at the last.
func TestConcurrent(t *testing.T) {
	const writers, rounds = 4, 50
	s := store.New()
	var writing, watching sync.WaitGroup
	for w := byte(1); w <= writers; w++ {
		writing.Go(func() {
			for r := range byte(rounds) {
				if _, err := s.Set([]lb.Service{service("web", w, r)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		watching.Go(func() {
			last := uint64(0)
			for last < writers*rounds {
				snapshot, changed := s.Watch()
				if snapshot.Revision < last {
					t.Errorf("revision %d after %d", snapshot.Revision, last)
				}
				if last = snapshot.Revision; last < writers*rounds {
					<-changed
				}
			}
		})
	}
	writing.Wait()
	watching.Wait()
	if snapshot := s.Snapshot(); !slices.ContainsFunc(snapshot.Services, func(e store.Entry) bool { return e.Revision == snapshot.Revision }) {
		t.Errorf("no service has the last revision: %s", text(snapshot))
	}
}
