// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane/xdp"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source/node"
)

// benchConfig is a file of services with 16 backends each; the first changed of them have
// a backend of the given weight.
func benchConfig(services, weight, changed int) []byte {
	var b bytes.Buffer
	b.WriteString("node: {name: bench, interfaces: [fl0]}\nservices:\n")
	for s := range services {
		vip := netip.AddrFrom4([4]byte{10, 1, byte(s >> 8), byte(s)})
		fmt.Fprintf(&b, "  - name: s%d\n    address: %s\n    port: 80\n    forward: l2dsr\n    backends:\n", s, vip)
		for i := range 16 {
			w := 1
			if s < changed && i == 0 {
				w = weight
			}
			fmt.Fprintf(&b, "      - {address: %s, weight: %d, mac: \"02:00:00:00:01:%02x\"}\n", netip.AddrFrom4([4]byte{10, 0, 2, byte(2 + i)}), w, i)
		}
	}
	return b.Bytes()
}

// BenchmarkReload measures from the change of the file (a rename, as editors
// do) to the kernel's tables: file events, parsing, store, reconcile, XDP. Before that it
// measures the start, from the file to all services in the tables.
func BenchmarkReload(b *testing.B) {
	for _, size := range []struct{ services, changed int }{{100, 1}, {100, 100}, {4096, 1}} {
		b.Run(fmt.Sprintf("changed=%d/of=%d", size.changed, size.services), func(b *testing.B) {
			begun := time.Now()
			a, path := startOnXDP(b, benchConfig(size.services, 1, size.services))
			started := time.Since(begun)
			files := [2][]byte{benchConfig(size.services, 2, size.changed), benchConfig(size.services, 3, size.changed)}
			next := 1
			var times []time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				next++
				b.StopTimer()
				if err := os.WriteFile(path+".next", files[i%2], 0o600); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				begun := time.Now()
				if err := os.Rename(path+".next", path); err != nil {
					b.Fatal(err)
				}
				if err := a.reconciler.Settled(b.Context(), uint64(next)); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(begun))
			}
			b.StopTimer()
			slices.Sort(times)
			for _, percent := range []int{50, 90, 99} {
				b.ReportMetric(float64(times[len(times)*percent/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", percent))
			}
			b.ReportMetric(float64(started.Milliseconds()), "start-ms")
			touched := 0
			for _, s := range a.store.Snapshot().Statuses() {
				if s.Error != "" {
					b.Errorf("service %s: %s", s.Name, s.Error)
				}
				if s.Programmed == uint64(next) {
					touched++
				}
			}
			if touched != size.changed {
				b.Errorf("the last reload programmed %d services, want %d", touched, size.changed)
			}
		})
	}
}

// startOnXDP runs an agent on the XDP data plane in a network namespace of its own until all
// services are programmed, and returns it with its configuration file.
func startOnXDP(b testing.TB, file []byte) (*Agent, string) {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("a network namespace and BPF programs need root")
	}
	path := filepath.Join(b.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	source, err := config.Open(path, log, config.Parser(xdp.Limits()))
	if err != nil {
		b.Fatal(err)
	}
	claim, err := control.ClaimSocket(filepath.Join(b.TempDir(), "agent.sock"))
	if err != nil {
		b.Fatal(err)
	}
	pins := fmt.Sprintf("/sys/fs/bpf/fairlead-bench-%d-%d", os.Getpid(), time.Now().UnixNano())
	conf := source.Config().Dataplane
	dp := openInNamespace(b, xdp.Config{
		PinDir: pins, Interfaces: []string{"fl0"}, Mode: "auto", Log: log,
		Capacity: xdp.Capacity{Services: conf.Services, Backends: conf.Backends, Flows: conf.Flows, Sessions: conf.NATSessions},
	})
	a := New(Config{
		Started: time.Now(), Source: node.File{Source: source, Log: log}, Drains: path + ".drains", Verdicts: path + ".health", Events: observe.NewRecorder(log), Log: log,
		Plane: benchPlane{dp},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx, claim, nil) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if err := dp.Close(); err != nil {
			b.Error(err)
		}
		if err := claim.Release(); err != nil {
			b.Error(err)
		}
		if err := xdp.Remove(pins); err != nil {
			b.Error(err)
		}
	})
	if err := a.reconciler.Settled(ctx, 1); err != nil {
		b.Fatal(err)
	}
	return a, path
}

// benchPlane gets no packets.
type benchPlane struct{ *xdp.Plane }

func (benchPlane) Describe() observe.DataPlane { return observe.DataPlane{} }

func (benchPlane) Prepare([]*lb.Service) {}

func (benchPlane) Attach(context.Context) error { return nil }

func (benchPlane) KeepAttached(context.Context, func(error)) {}

// openInNamespace opens a data plane in a new network namespace with one veth
// pair. The namespace ends with the test.
func openInNamespace(b testing.TB, cfg xdp.Config) *xdp.Plane {
	b.Helper()
	type result struct {
		plane *xdp.Plane
		err   error
	}
	opened := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		plane, err := func() (*xdp.Plane, error) {
			ns, err := netns.New()
			if err != nil {
				return nil, err
			}
			b.Cleanup(func() { _ = ns.Close() })
			if err := vethPair(); err != nil {
				return nil, err
			}
			return xdp.Open(cfg)
		}()
		opened <- result{plane, err}
	}()
	r := <-opened
	if r.err != nil {
		b.Fatal(r.err)
	}
	return r.plane
}

func vethPair() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "fl0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "fl1"}); err != nil {
		return err
	}
	for _, name := range []string{"fl0", "fl1"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName("fl0")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr("10.0.2.1/8")
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, address)
}
