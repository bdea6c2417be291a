// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// services are "web" with backends 10.0.0.1:80, 10.0.0.1:81 and 10.0.0.2:80.
func services() []lb.Service {
	web := service("web", 1, 1, 1, 2)
	web.Forward, web.Backends[1].Port = lb.NAT, 81
	return []lb.Service{web}
}

func target(service, address string, port uint16) store.Target {
	t := store.Target{Service: service}
	if address != "" {
		t.Backend = netip.AddrPortFrom(netip.MustParseAddr(address), port)
	}
	return t
}

// saved is an agent's store with the file of its drains; open is the start of the next agent.
type saved struct {
	t      *testing.T
	path   string
	log    bytes.Buffer
	store  *store.Store
	drains *store.Drains
}

func newSaved(t *testing.T) *saved {
	d := &saved{t: t, path: filepath.Join(t.TempDir(), "agent.drains.json")}
	d.open()
	return d
}

func (d *saved) open() {
	d.t.Helper()
	d.store = store.New()
	d.drains = store.OpenDrains(d.path, d.store, slog.New(slog.NewTextHandler(&d.log, nil)))
	if _, err := d.store.Set(services()); err != nil {
		d.t.Fatal(err)
	}
}

// want checks the drains, in the store and after the next start.
func (d *saved) want(names ...string) {
	d.t.Helper()
	for range 2 {
		if got, want := fmt.Sprint(d.store.Snapshot().Drains), fmt.Sprint(names); got != want {
			d.t.Errorf("drained are %s, want %s", got, want)
		}
		d.open()
	}
}

func (d *saved) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func TestDrainsSaved(t *testing.T) {
	d := newSaved(t)
	d.want()
	for range 2 { // it is idempotent
		d.must(d.drains.Drain(target("web", "10.0.0.2", 80)))
	}
	d.want("web 10.0.0.2:80")
	since := d.store.Snapshot().Drains[0].Since
	d.must(d.drains.Drain(target("web", "10.0.0.1", 0)))
	d.want("web 10.0.0.1:80", "web 10.0.0.1:81", "web 10.0.0.2:80")
	if got := d.store.Snapshot().Drains[2].Since; !got.Equal(since) {
		t.Errorf("drained since %s, want %s", got, since)
	}
	d.must(d.drains.Drain(target("web", "", 0)))
	d.must(d.drains.Drain(target("", "", 0)))
	d.must(d.drains.Undrain(target("web", "10.0.0.1", 81)))
	d.want("node", "web", "web 10.0.0.1:80", "web 10.0.0.2:80")
	for range 2 {
		d.must(d.drains.Undrain(target("", "", 0)))
		d.must(d.drains.Undrain(target("web", "", 0)))
	}
	d.want("web 10.0.0.1:80", "web 10.0.0.2:80")
	if info, err := os.Stat(d.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v (%v), want mode 0600", info.Mode(), err)
	}
	if d.log.Len() > 0 {
		t.Errorf("log: %s", &d.log)
	}
}

func TestUnknownDrainTargets(t *testing.T) {
	d := newSaved(t)
	for want, target := range map[string]store.Target{
		`service "dns": not in the configuration`:           target("dns", "", 0),
		`service "dns": not in the configuration `:          target("dns", "10.0.0.1", 80),
		`backend web 10.0.0.3: not in the configuration`:    target("web", "10.0.0.3", 0),
		`backend web 10.0.0.2:81: not in the configuration`: target("web", "10.0.0.2", 81),
		`backend 10.0.0.2:80: of which service?`:            target("", "10.0.0.2", 80),
	} {
		for what, err := range map[string]error{"drain": d.drains.Drain(target), "undrain": d.drains.Undrain(target)} {
			if err == nil || err.Error() != strings.TrimSpace(want) {
				t.Errorf("%s %s: error %v, want %s", what, target, err, want)
			}
		}
	}
	d.want()
}

// A drained target can be undrained after it has left the configuration.
func TestUndrainUnconfigured(t *testing.T) {
	d := newSaved(t)
	d.must(d.drains.Drain(target("web", "10.0.0.2", 80)))
	if _, err := d.store.Set(nil); err != nil {
		t.Fatal(err)
	}
	d.must(d.drains.Undrain(target("web", "10.0.0.2", 0)))
	d.want()
}

// A node that is drained because its agent ends is not drained when it is back.
func TestShutdownDrainNotSaved(t *testing.T) {
	d := newSaved(t)
	d.store.Drain(store.Drain{Since: time.Now()})
	d.must(d.drains.Drain(target("web", "", 0)))
	d.open()
	d.want("web")
}

func TestCorruptDrains(t *testing.T) {
	for _, text := range []string{"", "[", `{"service": "web"}`, `[{"service": 1}]`, `[{"backend": "10.0.0.1:80"}]`, "\x00\xff"} {
		d := newSaved(t)
		d.must(os.WriteFile(d.path, []byte(text), 0o600))
		d.open()
		if !strings.Contains(d.log.String(), "level=ERROR") || len(d.store.Snapshot().Drains) > 0 {
			t.Errorf("%q: drains %v, log %q", text, d.store.Snapshot().Drains, &d.log)
		}
		d.must(d.drains.Drain(target("web", "", 0)))
		d.want("web")
	}
}

// A drain that can't be saved is not applied.
func TestUnwritableDrains(t *testing.T) {
	d := newSaved(t)
	d.drains = store.OpenDrains(filepath.Join(d.path, "nosuch", "file"), d.store, slog.New(slog.DiscardHandler))
	if err := d.drains.Drain(target("web", "", 0)); err == nil || len(d.store.Snapshot().Drains) > 0 {
		t.Errorf("error %v, drains %v", err, d.store.Snapshot().Drains)
	}
}

func TestDrainsPath(t *testing.T) {
	for socket, want := range map[string]string{
		"/run/fairlead/agent.sock": "/run/fairlead/agent.drains.json",
		"agent":                    "agent.drains.json",
	} {
		if got := store.DrainsPath(socket); got != want {
			t.Errorf("%s: %s, want %s", socket, got, want)
		}
	}
}

func TestTargetCovers(t *testing.T) {
	one := target("web", "10.0.0.1", 80)
	for _, tt := range []struct {
		named store.Target
		want  bool
	}{
		{one, true}, {target("web", "10.0.0.1", 0), true}, {target("web", "10.0.0.1", 81), false}, {target("dns", "10.0.0.1", 0), false},
		{target("web", "", 0), false}, {target("", "", 0), false}, {target("web", "10.0.0.2", 0), false},
	} {
		if got := tt.named.Covers(one); got != tt.want {
			t.Errorf("%s covers %s: %t", tt.named, one, got)
		}
	}
}

// FuzzDrains checks that no file of drains stops an agent, and that drains read from it
// are saved unchanged.
func FuzzDrains(f *testing.F) {
	for _, seed := range []string{
		"", "[", "null", `[{"service":"web","backend":"10.0.0.1:80","since":"2026-01-01T00:00:00Z"}]`, `[{"service":"web","ba`,
		`[{}, {"service":"web"}]`, `[{"backend":"[fe80::1%eth0]:80"}]`,
		`[{"service":"web"},{"service":"web"},{"since":"yesterday"}]`, `[{"since":"2026-01-01T00:00:00+02:00"}] x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := newSaved(t)
		d.must(os.WriteFile(d.path, data, 0o600))
		d.open()
		d.must(d.drains.Drain(store.Target{}))
		want := d.store.Snapshot().Drains
		d.open()
		got := d.store.Snapshot().Drains
		if !slices.EqualFunc(got, want, func(a, b store.Drain) bool { return a.Target == b.Target && a.Since.Equal(b.Since) }) {
			t.Errorf("read %v, saved %v", got, want)
		}
	})
}
