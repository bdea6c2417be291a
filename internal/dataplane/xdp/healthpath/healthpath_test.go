// SPDX-License-Identifier: Apache-2.0

package healthpath

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ownNamespace puts the calling goroutine on a thread with a network namespace of
// its own, which ends with the thread. Subtests would run elsewhere.
func ownNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	runtime.LockOSThread() // never unlocked
	ns, err := netns.New()
	must(t, err)
	must(t, ns.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func config(log *slog.Logger) Config { return Config{Targets: 16, Log: log} }

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fallback are the devices that tunnel modules make in every namespace.
var fallback = []string{"ip6tnl0", "sit0", "tunl0"}

// left lists the namespace's devices except for the loopback and modules' ones, and rules and
// routes of probes.
func left(t *testing.T) []string {
	t.Helper()
	links, err := netlink.LinkList()
	must(t, err)
	var found []string
	for _, l := range links[1:] {
		if name := l.Attrs().Name; !slices.Contains(fallback, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := netlink.RuleList(family)
		must(t, err)
		for _, r := range rules {
			if r.Table == routeTable {
				found = append(found, "rule")
			}
		}
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: routeTable}, netlink.RT_FILTER_TABLE)
		must(t, err)
		for _, r := range routes {
			if r.Dst == nil || r.Dst.IP.IsUnspecified() {
				found = append(found, "route")
			}
		}
	}
	return found
}

// whole returns the complete state of a Sender.
func whole() []string {
	return []string{deviceName, peerName, "rule", "route", "rule", "route"}
}

func wantLeft(t *testing.T, when string, want []string) {
	t.Helper()
	if got := left(t); !slices.Equal(got, want) {
		t.Fatalf("%s there are %v, want %v", when, got, want)
	}
}

// A sender takes everything with it, and Remove leaves one that works alone.
func TestOpenAndClose(t *testing.T) {
	ownNamespace(t)
	for range 2 {
		s, err := Open(config(silent()))
		must(t, err)
		wantLeft(t, "after opening", whole())
		if _, err := Open(config(silent())); !errors.Is(err, errClaimed) {
			t.Errorf("a second sender: error %v, want %v", err, errClaimed)
		}
		must(t, Remove())
		wantLeft(t, "with a sender", whole())
		must(t, s.Close())
		wantLeft(t, "after closing", nil)
	}
}

// A killed agent's state is replaced by the next one, and removed by Remove.
func TestAfterKill(t *testing.T) {
	ownNamespace(t)
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	must(t, err)
	defer handle.Close()
	kill := func() device {
		d, err := makeDevice(handle)
		must(t, err)
		must(t, d.up(handle))
		_, err = d.route(handle)
		must(t, err)
		wantLeft(t, "after a kill", whole())
		return d
	}
	old := kill()
	s, err := Open(config(silent()))
	must(t, err)
	wantLeft(t, "after opening", whole())
	if s.device.near == old.near {
		t.Error("the device is still the killed agent's")
	}
	must(t, s.Close())
	kill()
	must(t, Remove())
	must(t, Remove())
	wantLeft(t, "after removing", nil)
}

// Two network namespaces have nothing to do with each other.
func TestSideBySide(t *testing.T) {
	var both, ends sync.WaitGroup
	both.Add(2)
	for range 2 {
		ends.Go(func() {
			ownNamespace(t)
			s, err := Open(config(silent()))
			both.Done()
			if err != nil {
				t.Error(err)
				return
			}
			both.Wait()
			if got := left(t); !slices.Equal(got, whole()) {
				t.Errorf("there are %v, want %v", got, whole())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	ends.Wait()
}

// Rules and routes that are flushed are restored and logged.
func TestRestoredRules(t *testing.T) {
	ownNamespace(t)
	var log lockedText
	s, err := Open(config(slog.New(slog.NewTextHandler(&log, nil))))
	must(t, err)
	defer s.Close()
	must(t, removeRules(s.netlink))
	for deadline := time.Now().Add(10 * keepInterval); !slices.Equal(left(t), whole()); {
		if time.Now().After(deadline) {
			t.Fatalf("there are %v, want %v", left(t), whole())
		}
		time.Sleep(10 * time.Millisecond)
	}
	for deadline := time.Now().Add(10 * keepInterval); !strings.Contains(log.String(), "was missing"); {
		if time.Now().After(deadline) {
			t.Fatalf("the log doesn't say that a rule was missing: %s", log.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A device that is deleted is made again, with its programs and routes.
func TestRestoredDevice(t *testing.T) {
	ownNamespace(t)
	s, err := Open(config(silent()))
	must(t, err)
	// On this thread, which is in the namespace.
	close(s.done)
	s.running.Wait()
	s.done = make(chan struct{})
	defer s.Close()
	link, err := netlink.LinkByName(deviceName)
	must(t, err)
	must(t, netlink.LinkDel(link))
	wantLeft(t, "without the device", []string{"rule", "rule"})
	must(t, s.restore())
	wantLeft(t, "after restoring", whole())
	far, err := netlink.LinkByName(peerName)
	must(t, err)
	if x := far.Attrs().Xdp; x == nil || !x.Attached {
		t.Error("the device has no program")
	}
}

// lockedText is a log that is written and read at the same time.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Probes come from the address that the route to the backend prefers, or one of
// its device's, or any that this machine has.
func TestSource(t *testing.T) {
	ownNamespace(t)
	s, err := Open(config(silent()))
	must(t, err)
	defer s.Close()
	vip4, vip6 := netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fd00:10::1")
	if _, err := s.Source(vip4, netip.MustParseAddr("10.0.2.21")); err == nil || !strings.Contains(err.Error(), "10.1.1.1") {
		t.Errorf("without an address: error %v", err)
	}
	for name, addresses := range map[string][]string{
		"one": {"10.0.2.11/24", "fd00:2::11/64"},
		"two": {"10.0.3.11/24", "10.0.4.11/24", "fd00:3::11/64"},
	} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		link := &netlink.Veth{LinkAttrs: attrs, PeerName: name + "-peer"}
		must(t, netlink.LinkAdd(link))
		must(t, netlink.LinkSetUp(link))
		for _, text := range addresses {
			a, err := netlink.ParseAddr(text)
			must(t, err)
			a.Flags = unix.IFA_F_NODAD
			must(t, netlink.AddrAdd(link, a))
		}
	}
	for _, c := range []struct {
		what         string
		vip          netip.Addr
		backend      string
		want, orThat string
	}{
		{"the same network", vip4, "10.0.2.21", "10.0.2.11", ""},
		{"another network of a device", vip4, "10.0.4.21", "10.0.4.11", ""},
		{"IPv6", vip6, "fd00:3::21", "fd00:3::11", ""},
		{"IPv6 VIP, IPv4 backend", vip6, "10.0.3.21", "fd00:3::11", ""},
		{"IPv4 VIP, IPv6 backend", vip4, "fd00:2::21", "10.0.2.11", ""},
		{"no route", vip4, "192.0.2.1", "10.0.2.11", "10.0.3.11"},
	} {
		got, err := s.Source(c.vip, netip.MustParseAddr(c.backend))
		if err != nil || (got.String() != c.want && got.String() != c.orThat) {
			t.Errorf("%s: %v (%v), want %s", c.what, got, err, c.want)
		}
	}
}

func TestTargetLimit(t *testing.T) {
	for _, n := range []int{0, -1, MaxTargets + 1} {
		if _, err := Open(Config{Targets: n, Log: silent()}); err == nil {
			t.Errorf("%d targets are accepted", n)
		}
	}
}
