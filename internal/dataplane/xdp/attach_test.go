// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"context"
	"errors"
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
func inNamespace(t *testing.T, fn func() error) {
	t.Helper()
	needRoot(t)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		defer close(done)      // also when fn calls t.FailNow, which ends this goroutine
		done <- func() error {
			ns, err := netns.New()
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := addVeth(); err != nil {
				return err
			}
			return fn()
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func addVeth() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "fl0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "fl1"}); err != nil {
		return err
	}
	for _, name := range []string{"fl0", "fl1", "lo"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

// openAttached opens a data plane, closes it again, and returns to what it was
// attached; the kernel keeps the attachments.
func openAttached(t *testing.T, pins string, mode program.Mode, interfaces ...string) map[string]program.Attachment {
	t.Helper()
	p, err := Open(Config{PinDir: pins, Interfaces: interfaces, Mode: mode, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Error(err)
		return nil
	}
	if err := p.Attach(t.Context()); err != nil {
		t.Error(err)
	}
	attachments := map[string]program.Attachment{}
	for _, a := range p.Attachments() {
		attachments[a.Interface] = a
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	return attachments
}

// attachedProgram is the id of the XDP program on an interface; 0 for none.
func attachedProgram(t *testing.T, name string) uint32 {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Error(err)
		return 0
	}
	if x := link.Attrs().Xdp; x != nil {
		return x.ProgId
	}
	return 0
}

// Native where the driver can, generic with a reason where it can't; native
// alone is refused there.
func TestAttachModes(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
		got := openAttached(t, pins, program.Auto, "fl0", "lo")
		if a := got["fl0"]; a.Mode != program.Native || a.Reason != "" || a.Adopted {
			t.Errorf("veth: %+v, want native", a)
		}
		if a := got["lo"]; a.Mode != program.Generic || a.Reason == "" {
			t.Errorf("loopback: %+v, want generic with a reason", a)
		}
		p, err := Open(Config{PinDir: testPins(t), Interfaces: []string{"lo"}, Mode: program.Native, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if p.Attach(t.Context()) == nil {
			t.Error("native XDP on the loopback was not refused")
		}
		return p.Close()
	})
}

// Neighbours that answer late do not change a ring: the program is attached after
// their answers, and no entry is unstable.
func TestAttachAfterNeighbours(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
		kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer kernel.Close()
		fl0, err := kernel.LinkByName("fl0")
		if err != nil {
			return err
		}
		own := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 2, 11), Mask: net.CIDRMask(24, 32)}}
		if err := kernel.AddrAdd(fl0, own); err != nil {
			return err
		}
		p, err := Open(Config{PinDir: pins, Interfaces: []string{"fl0"}, Mode: program.Auto, Seed: 1, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
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
		if err := p.Attach(t.Context()); err != nil {
			return err
		}
		err = others.Wait()
		if n, unstable := programmed.InUse(), p.services[svc.VIP].now.ring.Unstable(); n != 2 || unstable > 0 {
			t.Errorf("%d of 2 backends are in use, %d entries are unstable, want none", n, unstable)
		}
		return errors.Join(err, p.Close())
	})
}

// A successor replaces the program without taking it off, takes it off
// interfaces that are no longer configured, and changes the mode if it has to.
func TestAttachAgain(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
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
		return nil
	})
}

// An interface that was recreated under its old name gets a program again.
func TestAttachRecreatedInterface(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
		openAttached(t, pins, program.Auto, "fl0")
		link, err := netlink.LinkByName("fl0")
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil {
			return err
		}
		if err := addVeth(); err != nil {
			return err
		}
		if a := openAttached(t, pins, program.Auto, "fl0")["fl0"]; a.Adopted {
			t.Errorf("%+v, want a new attachment", a)
		}
		if attachedProgram(t, "fl0") == 0 {
			t.Error("no program on the new interface")
		}
		return nil
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
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "fl0"
	return kernel.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "fl1"})
}

// A live agent attaches the program again to an interface that is deleted and created
// again, and reports that it is missing until then. Changes of the program don't wait
// for the interface.
func TestInterfaceIsRecreated(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
		kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer kernel.Close()
		p, err := Open(Config{PinDir: pins, Interfaces: []string{"fl0", "lo"}, Mode: program.Auto, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if err := p.Attach(t.Context()); err != nil {
			return err
		}
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
		if err := others.Wait(); err != nil {
			return err
		}
		if n := len(p.Attachments()); n != 2 || attachedProgram(t, "fl0") == 0 || attachedProgram(t, "fl0") != attachedProgram(t, "lo") {
			t.Errorf("%d attachments, programs %d and %d: want one program on both", n, attachedProgram(t, "fl0"), attachedProgram(t, "lo"))
		}
		return p.Close()
	})
}

// A link whose interface has been deleted doesn't keep another program from being used.
func TestLinkWithoutInterface(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
		p, err := Open(Config{PinDir: pins, Interfaces: []string{"fl0", "lo"}, Mode: program.Auto, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if err := p.Attach(t.Context()); err != nil {
			return err
		}
		before := attachedProgram(t, "lo")
		link, err := netlink.LinkByName("fl0")
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			return err
		}
		if _, err := p.Update(t.Context(), manyBackends(vip4, 2)); err != nil {
			t.Error(err)
		}
		if after := attachedProgram(t, "lo"); after == before {
			t.Error("the program was not replaced")
		}
		return p.Close()
	})
}

func TestRemove(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
		openAttached(t, pins, program.Auto, "fl0")
		if err := Remove(pins); err != nil {
			return err
		}
		if id := attachedProgram(t, "fl0"); id != 0 {
			t.Errorf("program %d is still attached", id)
		}
		if _, err := os.Stat(filepath.Join(pins, table.Layout)); !os.IsNotExist(err) {
			t.Errorf("pins are still there: %v, want %v", err, fs.ErrNotExist)
		}
		return nil
	})
}

// A directory that isn't an agent's is left alone.
func TestRemoveRefuses(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, table.Layout)
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err == nil {
		t.Error("a directory outside the BPF file system was not refused")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// A service that needs what the running program of an earlier agent lacks is not
// seen by that program: it is replaced first, and only then.
func TestInheritedProgramIsReplacedInTime(t *testing.T) {
	pins := testPins(t)
	inNamespace(t, func() error {
		cfg := Config{PinDir: pins, Interfaces: []string{"fl0"}, Mode: program.Auto, Log: slog.New(slog.DiscardHandler)}
		direct, tunnelled := manyBackends(vip4, 2), manyBackends(vip6, 2)
		tunnelled.Forward = lb.IPIP
		p, err := Open(cfg)
		if err != nil {
			return err
		}
		if _, err := p.Update(context.Background(), direct); err != nil {
			return err
		}
		if err := p.Attach(t.Context()); err != nil {
			return err
		}
		if err := p.Close(); err != nil {
			return err
		}
		first := attachedProgram(t, "fl0")

		if p, err = Open(cfg); err != nil {
			return err
		}
		if _, err := p.Update(context.Background(), direct); err != nil {
			return err
		}
		if id := attachedProgram(t, "fl0"); id != first {
			t.Error("the program was replaced although it has all that is needed")
		}
		if _, err := p.Update(context.Background(), tunnelled); err != nil {
			return err
		}
		if id := attachedProgram(t, "fl0"); id == first || p.programs.Features&program.FeatureIPIP == 0 {
			t.Errorf("program %d with %s runs, want another one than %d with ipip", id, p.programs.Features, first)
		}
		if err := p.Attach(t.Context()); err != nil {
			return err
		}
		if n := len(p.Attachments()); n != 1 || !p.Attachments()[0].Adopted {
			t.Errorf("attachments %+v, want one, adopted", p.Attachments())
		}
		if want := program.FeatureL2DSR | program.FeatureIPIP; p.programs.Features != want {
			t.Errorf("program has %s, want %s", p.programs.Features, want)
		}
		return p.Close()
	})
}
