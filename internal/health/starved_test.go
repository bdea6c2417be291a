// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// exchanges is a probe of several round trips, each of which is a connection that the
// kernel accepts at once. It is silent for the backend dead.
type exchanges struct {
	trips    int
	answered atomic.Int64
}

const living, dead = "127.0.0.1", "127.0.0.2"

func (e *exchanges) Probe(ctx context.Context, path Path) error {
	if path.Target.Addr().String() == dead {
		<-ctx.Done()
		return ctx.Err()
	}
	for range e.trips {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", path.Target.String())
		if err != nil {
			return err
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	e.answered.Add(1)
	return nil
}

// starve keeps the only processor busy until the test ends: a goroutine that becomes
// ready runs when each of the others has used its time slice.
func starve(t *testing.T, others int) {
	before := runtime.GOMAXPROCS(1)
	var ended atomic.Bool
	for range others {
		go func() {
			for !ended.Load() { //nolint:revive // it is to be busy
			}
		}()
	}
	t.Cleanup(func() {
		ended.Store(true)
		runtime.GOMAXPROCS(before)
	})
}

// A process whose goroutines run long after their answers have arrived takes no living
// backend out, and takes dead ones out all the same.
func TestStarvedProcess(t *testing.T) {
	listener, err := net.Listen("tcp", net.JoinHostPort(living, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	check := tcpCheck()
	check.Interval, check.Timeout, check.Fall = 50*time.Millisecond, 50*time.Millisecond, 1
	alive, silent := service("10.1.1.1", check, living), service("10.1.1.2", check, dead)
	alive.Backends[0].Port, silent.Backends[0].Port = port, port

	prober := &exchanges{trips: 3}
	out := make(chan Verdict, 100)
	m := New(Config{
		Paths: DirectPaths{}, Prober: func(*lb.HealthCheck) Prober { return prober }, Probes: 10, Log: slog.New(slog.DiscardHandler),
		Report: func(take func() []Verdict) {
			for _, v := range take() {
				if !v.Healthy {
					out <- v
				}
			}
		},
	})
	m.Set([]lb.Service{alive, silent})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	starve(t, 8)
	defer func() {
		stop()
		<-ended
	}()
	for found := false; !found || prober.answered.Load() < 2; {
		select {
		case v := <-out:
			if found = v.VIP == silent.VIP; !found {
				t.Fatalf("a living backend is out: %s", v.Reason)
			}
		case <-time.After(10 * time.Millisecond):
			if ctx.Err() != nil {
				t.Fatalf("dead backend out: %t; %d probes of a living one answered", found, prober.answered.Load())
			}
		}
	}
}
