// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/await"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// While a program is loaded, changes that don't need it are made at once.
func TestLoadDoesNotHoldUpdates(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		loads, loaded := make(chan program.Features), make(chan struct{})
		held := func(f program.Features) error {
			if f&program.FeatureIPIP != 0 {
				loads <- f
				<-loaded
			}
			return nil
		}
		p := openOn(t, Config{PinDir: pins, test: held}, "fl0")
		direct, tunnelled := manyBackends(vip4, 2), manyBackends(vip6, 2)
		tunnelled.Forward = lb.IPIP
		update(t, p, direct)
		must(t, p.Attach(t.Context()))
		var others errgroup.Group
		others.Go(func() error {
			_, err := p.Update(context.Background(), tunnelled)
			return err
		})
		<-loads
		err := promptly(func() error {
			direct.Backends[0].Down = true // as a backend that has died
			_, err := p.Update(context.Background(), direct)
			// Another service needs by now a feature that the program being loaded
			// lacks.
			limited := manyBackends(netip.MustParseAddr("10.1.1.2"), 2)
			limited.Unavailable = lb.Reject
			p.mu.Lock()
			p.programs.Recount(0, propertiesOf(limited).needs())
			p.mu.Unlock()
			return err
		})
		loaded <- struct{}{}
		if err == nil {
			if f := <-loads; f&program.FeatureReject == 0 {
				t.Errorf("program with %s, want all that is needed by now", f)
			}
			loaded <- struct{}{}
		}
		must(t, errors.Join(err, others.Wait(), p.Close()))
	})
}

// promptly returns the error of a change for which no program has to be loaded.
func promptly(change func() error) error {
	changed := make(chan error, 1)
	go func() { changed <- change() }()
	select {
	case err := <-changed:
		return err
	case <-time.After(await.Patience):
		return errors.New("an update waits for a program that it doesn't need")
	}
}

// So it is while the sweeper loads a program without a feature that no service needs any more.
func TestTrimDoesNotHoldUpdates(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		loads, loaded := make(chan program.Features, 16), make(chan struct{})
		var trims atomic.Bool
		held := func(f program.Features) error {
			if trims.Load() {
				loads <- f
				<-loaded
			}
			return nil
		}
		p := openOn(t, Config{PinDir: pins, test: held}, "fl0")
		direct, tunnelled := manyBackends(vip4, 2), manyBackends(vip6, 2)
		tunnelled.Forward = lb.IPIP
		update(t, p, direct)
		update(t, p, tunnelled)
		must(t, p.Attach(t.Context()))
		trims.Store(true)
		must(t, p.Delete(t.Context(), tunnelled.VIP))
		if f := <-loads; f&program.FeatureIPIP != 0 {
			t.Errorf("program with %s, want none that isn't needed", f)
		}
		err := promptly(func() error {
			direct.Backends[0].Down = true
			_, err := p.Update(context.Background(), direct)
			return err
		})
		close(loaded)
		must(t, errors.Join(err, p.Close()))
	})
}

// So it is while the program for tracing is loaded: the lock that changes need is free for most of
// that time.
func TestTraceDoesNotHoldUpdates(t *testing.T) {
	p := openTestPlane(t, testPins(t))
	svc := manyBackends(vip4, 2)
	update(t, p, svc)
	_, err := p.programs.Load(program.AllFeatures)
	must(t, err)
	frame, err := phasePacket(svc.VIP, client4, dataplanetest.Opening, 1)
	must(t, err)
	traced := make(chan error, 1)
	go func() {
		_, err := p.Trace(context.Background(), dataplane.Packet{Frame: frame})
		traced <- err
	}()
	free, taken := 0, 0
	for {
		select {
		case err := <-traced:
			if err != nil || free <= taken {
				t.Errorf("error %v, the lock was free %d times and taken %d times", err, free, taken)
			}
			return
		default:
		}
		switch {
		case p.loader.mu.TryLock(): // the trace hasn't begun, or has ended
			p.loader.mu.Unlock()
		case p.mu.TryLock():
			free++
			p.mu.Unlock()
		default:
			taken++
		}
		runtime.Gosched()
	}
}

// The kernel takes programs on the largest tables that can be configured: it knows how far an
// element is from the first one if that is less than 512 MiB.
func TestLargestTables(t *testing.T) {
	needRoot(t)
	p, err := newPlane(Config{
		Capacity: table.Capacity{Services: 1<<16 - 1, Backends: 1 << 20, Sessions: 1 << 10}, Log: slog.New(slog.DiscardHandler),
	}, fixedHops{})
	must(t, err)
	_, err = p.programs.Load(program.AllFeatures)
	must(t, errors.Join(err, p.Close()))
}

// Attach uses the program that Prepare has loaded, if it has all features that
// services need.
func TestPrepare(t *testing.T) {
	direct, tunnelled := manyBackends(vip4, 2), manyBackends(vip6, 2)
	tunnelled.Forward = lb.IPIP
	for name, one := range map[string]struct {
		prepared []*lb.Service
		loads    int
	}{
		"all":  {[]*lb.Service{direct, tunnelled}, 1},
		"some": {[]*lb.Service{direct}, 2},
		"none": {nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			pins := testPins(t)
			inNamespace(t, func() {
				var loads []program.Features
				test := func(f program.Features) error {
					loads = append(loads, f)
					return nil
				}
				p := openOn(t, Config{PinDir: pins, test: test}, "fl0")
				p.Prepare(one.prepared)
				update(t, p, direct)
				update(t, p, tunnelled)
				must(t, p.Attach(t.Context()))
				if want := program.FeatureL2DSR | program.FeatureIPIP; len(loads) != one.loads || loads[len(loads)-1] != want {
					t.Errorf("loaded programs with %s, want %d, the last with %s", loads, one.loads, want)
				}
				if p.loader.prepared != nil {
					t.Error("the prepared program is still loaded")
				}
				must(t, p.Close())
			})
		})
	}
}
