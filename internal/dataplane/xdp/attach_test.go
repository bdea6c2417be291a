// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// inNamespace runs fn in a new network namespace with a veth pair, fl0 and fl1,
// on a thread that ends with it.
func inNamespace(t *testing.T, fn func()) {
	t.Helper()
	needRoot(t)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked
		defer close(done)      // also when fn calls t.FailNow, which ends this goroutine
		ns, err := netns.New()
		must(t, err)
		defer ns.Close()
		addVeth(t)
		fn()
	}()
	<-done
}

func addVeth(t *testing.T) {
	t.Helper()
	must(t, netlink.LinkAdd(veth()))
	for _, name := range []string{"fl0", "fl1", "lo"} {
		must(t, netlink.LinkSetUp(linkByName(t, name)))
	}
}

func veth() *netlink.Veth {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "fl0"
	return &netlink.Veth{LinkAttrs: attrs, PeerName: "fl1"}
}

func linkByName(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	must(t, err)
	return link
}

// openOn opens a plane of these interfaces, which is not attached to them yet. Its mode is
// Auto by default.
func openOn(t *testing.T, cfg Config, interfaces ...string) *Plane {
	t.Helper()
	cfg.Interfaces, cfg.Mode, cfg.Log = interfaces, cmp.Or(cfg.Mode, program.Auto), slog.New(slog.DiscardHandler)
	p, err := Open(cfg)
	must(t, err)
	return p
}

// openAttached opens a data plane, closes it again, and returns its attachments,
// which the kernel keeps.
func openAttached(t *testing.T, pins string, mode program.Mode, interfaces ...string) map[string]program.Attachment {
	t.Helper()
	p := openOn(t, Config{PinDir: pins, Mode: mode}, interfaces...)
	must(t, p.Attach(t.Context()))
	attachments := map[string]program.Attachment{}
	for _, a := range p.Attachments() {
		attachments[a.Interface] = a
	}
	must(t, p.Close())
	return attachments
}

// attachedProgram is the id of the XDP program on an interface; 0 for none.
func attachedProgram(t *testing.T, name string) uint32 {
	t.Helper()
	if x := linkByName(t, name).Attrs().Xdp; x != nil {
		return x.ProgId
	}
	return 0
}

// Native where the driver can, generic with a reason where it can't; native
// alone is refused there.
func TestAttachModes(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		got := openAttached(t, pins, program.Auto, "fl0", "lo")
		if a := got["fl0"]; a.Mode != program.Native || a.Reason != "" || a.Adopted {
			t.Errorf("veth: %+v, want native", a)
		}
		if a := got["lo"]; a.Mode != program.Generic || a.Reason == "" {
			t.Errorf("loopback: %+v, want generic with a reason", a)
		}
		p := openOn(t, Config{PinDir: testPins(t), Mode: program.Native}, "lo")
		if p.Attach(t.Context()) == nil {
			t.Error("native XDP on the loopback was not refused")
		}
		must(t, p.Close())
	})
}

// Neighbours that answer late do not change a ring: the program is attached after
// their answers, and no entry is unstable.
func TestAttachAfterNeighbours(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		must(t, err)
		defer kernel.Close()
		fl0 := linkByName(t, "fl0")
		own := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 2, 11), Mask: net.CIDRMask(24, 32)}}
		must(t, kernel.AddrAdd(fl0, own))
		p := openOn(t, Config{PinDir: pins, Seed: 1}, "fl0")
		svc := manyBackends(vip4, 2)
		programmed, err := p.Update(context.Background(), svc)
		if n := programmed.InUse(); n > 0 || err != nil {
			t.Errorf("%d backends are in use before their neighbours have answered: %v", n, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := p.Attach(ended); !errors.Is(err, context.Canceled) || attachedProgram(t, "fl0") != 0 {
			t.Errorf("after the end of its context: %v, program %d", err, attachedProgram(t, "fl0"))
		}
		var others errgroup.Group
		others.Go(func() (err error) {
			for i, b := range svc.Backends {
				answer := &netlink.Neigh{
					LinkIndex: fl0.Attrs().Index, IP: b.Address.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(i + 1)}, State: netlink.NUD_REACHABLE,
				}
				time.Sleep(100 * time.Millisecond) // Attach has begun
				err = errors.Join(err, kernel.NeighSet(answer))
				<-p.Stale()
				var wrong error
				programmed, wrong = p.Update(context.Background(), svc)
				err = errors.Join(err, wrong)
			}
			return err
		})
		must(t, p.Attach(t.Context()))
		must(t, others.Wait())
		if n, unstable := programmed.InUse(), p.services[svc.VIP].now.ring.Unstable(); n != 2 || unstable > 0 {
			t.Errorf("%d of 2 backends are in use, %d entries are unstable, want none", n, unstable)
		}
		must(t, p.Close())
	})
}

// A successor replaces the program without taking it off, takes it off
// interfaces that are no longer configured, and changes the mode if it has to.
func TestAttachAgain(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		openAttached(t, pins, program.Auto, "fl0", "fl1")
		first := attachedProgram(t, "fl0")
		got := openAttached(t, pins, program.Auto, "fl0")
		if a := got["fl0"]; !a.Adopted || a.Mode != program.Native {
			t.Errorf("the second agent's attachment: %+v, want adopted and native", a)
		}
		if second := attachedProgram(t, "fl0"); second == 0 || second == first {
			t.Errorf("program %d, before %d: want a new one", second, first)
		}
		if id := attachedProgram(t, "fl1"); id != 0 {
			t.Errorf("program %d is still on an interface that is not configured", id)
		}
		if a := openAttached(t, pins, program.Generic, "fl0")["fl0"]; a.Adopted || a.Mode != program.Generic {
			t.Errorf("asked for generic: %+v", a)
		}
	})
}

// An interface that was recreated under its old name gets a program again.
func TestAttachRecreatedInterface(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		openAttached(t, pins, program.Auto, "fl0")
		must(t, netlink.LinkDel(linkByName(t, "fl0")))
		addVeth(t)
		if a := openAttached(t, pins, program.Auto, "fl0")["fl0"]; a.Adopted {
			t.Errorf("%+v, want a new attachment", a)
		}
		if attachedProgram(t, "fl0") == 0 {
			t.Error("no program on the new interface")
		}
	})
}

// recreate deletes fl0 and creates it again, after meanwhile.
func recreate(kernel *netlink.Handle, meanwhile func() error) error {
	link, err := kernel.LinkByName("fl0")
	if err == nil {
		err = kernel.LinkDel(link)
	}
	if err == nil {
		err = meanwhile()
	}
	if err != nil {
		return err
	}
	return kernel.LinkAdd(veth())
}

// A live agent attaches the program again to an interface that is deleted and created
// again, and reports that it is missing until then. Changes of the program don't wait
// for the interface.
func TestRecreatedInterface(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		must(t, err)
		defer kernel.Close()
		p := openOn(t, Config{PinDir: pins}, "fl0", "lo")
		must(t, p.Attach(t.Context()))
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		reports := make(chan error)
		var others errgroup.Group
		others.Go(func() error {
			defer end()
			err := recreate(kernel, func() error {
				if missing := <-reports; missing == nil || !strings.HasPrefix(missing.Error(), "interface fl0: ") {
					t.Errorf("without the interface: %v", missing)
				}
				if n := len(p.Attachments()); n != 1 {
					t.Errorf("%d attachments, want that to lo", n)
				}
				tunnelled := manyBackends(vip4, 2)
				tunnelled.Forward = lb.IPIP
				_, err := p.Update(ctx, tunnelled)
				return err
			})
			if err != nil {
				return err
			}
			if missing := <-reports; missing != nil {
				t.Errorf("after it was created again: %v", missing)
			}
			return nil
		})
		p.KeepAttached(ctx, func(missing error) {
			select {
			case reports <- missing:
			case <-ctx.Done():
				close(reports)
			}
		})
		must(t, others.Wait())
		if n := len(p.Attachments()); n != 2 || attachedProgram(t, "fl0") == 0 || attachedProgram(t, "fl0") != attachedProgram(t, "lo") {
			t.Errorf("%d attachments, programs %d and %d: want one program on both", n, attachedProgram(t, "fl0"), attachedProgram(t, "lo"))
		}
		must(t, p.Close())
	})
}

// A link whose interface has been deleted doesn't keep another program from being used.
func TestLinkWithoutInterface(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		p := openOn(t, Config{PinDir: pins}, "fl0", "lo")
		must(t, p.Attach(t.Context()))
		before := attachedProgram(t, "lo")
		must(t, netlink.LinkDel(linkByName(t, "fl0")))
		update(t, p, manyBackends(vip4, 2))
		if after := attachedProgram(t, "lo"); after == before {
			t.Error("the program was not replaced")
		}
		must(t, p.Close())
	})
}

// allowedNames are interface names with each character that the kernel allows in them, 15 bytes
// at most. It takes % for a pattern, and refuses white space, of Latin-1 too.
func allowedNames() []string {
	names := []string{"eth0.100", "bond0.20", "...", ".a", "a.", "eth0@if3", "é.ü", "a_b", "a-b", "a\x7f\x01"}
	var name []byte
	for c := byte('!'); c <= '~'; c++ {
		if !strings.ContainsRune("/:%", rune(c)) {
			name = append(name, c)
		}
		if len(name) == 15 || c == '~' {
			names, name = append(names, string(name)), nil
		}
	}
	return names
}

// An interface may have any name that the kernel allows, such as the one of a VLAN device. The
// next agent finds the pin by that name, also in a folder whose name looks like a pattern.
func TestInterfaceNames(t *testing.T) {
	pins := filepath.Join(testPins(t), "[a]*")
	t.Cleanup(func() { must(t, Remove(pins)) })
	inNamespace(t, func() {
		names := allowedNames()
		for i, name := range names {
			addInterface(t, name, fmt.Sprintf("peer%d", i))
		}
		for _, adopted := range []bool{false, true} {
			got := openAttached(t, pins, program.Auto, names...)
			for _, name := range names {
				if a, ok := got[name]; !ok || a.Adopted != adopted {
					t.Errorf("%q: %+v, want a program, adopted: %t", name, a, adopted)
				}
			}
		}
		openAttached(t, pins, program.Auto, names[1:]...)
		if id := attachedProgram(t, names[0]); id != 0 {
			t.Errorf("%s isn't configured any more, and program %d is still attached", names[0], id)
		}
		must(t, Remove(pins))
		for _, name := range names {
			if id := attachedProgram(t, name); id != 0 {
				t.Errorf("%q: program %d is still attached", name, id)
			}
		}
	})
}

// addInterface adds a veth pair, and sets one end up.
func addInterface(t *testing.T, name, peer string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer}); err != nil {
		t.Fatalf("interface %q: %v", name, err)
	}
	must(t, netlink.LinkSetUp(linkByName(t, name)))
}

func TestRemove(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		openAttached(t, pins, program.Auto, "fl0")
		must(t, Remove(pins))
		if id := attachedProgram(t, "fl0"); id != 0 {
			t.Errorf("program %d is still attached", id)
		}
		if _, err := os.Stat(filepath.Join(pins, table.Layout)); !os.IsNotExist(err) {
			t.Errorf("pins are still there: %v, want %v", err, fs.ErrNotExist)
		}
	})
}

// A directory that isn't an agent's is left alone.
func TestRemoveRefuses(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, table.Layout)
	must(t, os.Mkdir(kept, 0o700))
	if err := Remove(dir); err == nil {
		t.Error("a directory outside the BPF file system was not refused")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// A service that needs a feature that an earlier agent's program lacks becomes
// visible only after that program is replaced.
func TestInheritedProgram(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() {
		direct, tunnelled := manyBackends(vip4, 2), manyBackends(vip6, 2)
		tunnelled.Forward = lb.IPIP
		p := openOn(t, Config{PinDir: pins}, "fl0")
		update(t, p, direct)
		must(t, p.Attach(t.Context()))
		must(t, p.Close())
		first := attachedProgram(t, "fl0")

		p = openOn(t, Config{PinDir: pins}, "fl0")
		update(t, p, direct)
		if id := attachedProgram(t, "fl0"); id != first {
			t.Error("the program was replaced although it has all that is needed")
		}
		update(t, p, tunnelled)
		if id := attachedProgram(t, "fl0"); id == first || p.programs.Features&program.FeatureIPIP == 0 {
			t.Errorf("program %d with %s runs, want another one than %d with ipip", id, p.programs.Features, first)
		}
		must(t, p.Attach(t.Context()))
		if n := len(p.Attachments()); n != 1 || !p.Attachments()[0].Adopted {
			t.Errorf("attachments %+v, want one, adopted", p.Attachments())
		}
		if want := program.FeatureL2DSR | program.FeatureIPIP; p.programs.Features != want {
			t.Errorf("program has %s, want %s", p.programs.Features, want)
		}
		must(t, p.Close())
	})
}

// Once packets may read the tables, a change of a ring has a past.
func TestRingHasPastAfterAttach(t *testing.T) {
	p := openTestPlane(t, testPins(t))
	p.unread = true // as Open, without an earlier agent's services
	svc := manyBackends(vip4, 3)
	update(t, p, svc)
	must(t, p.Attach(t.Context()))
	svc.Backends = svc.Backends[1:]
	update(t, p, svc)
	if p.services[svc.VIP].now.ring.Unstable() == 0 {
		t.Error("no entry is unstable after a backend has left")
	}
}
