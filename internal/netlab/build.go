// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// pinDir is the BPF file system in a balancer's directory. It is the lab's own
// so that what is pinned there goes with the lab.
const pinDir = "bpf"

// builder turns a topology into what a lab's state says.
type builder struct {
	topology *Topology
	lab      *Lab
}

// build makes everything in the order in which one thing needs another. On an
// error what has been made stays, for demolish.
func (b *builder) build(ctx context.Context) error {
	hosts := []struct {
		what string
		step func(*Host) error
	}{
		{"namespaces", b.createNamespace},
		{"directories", b.furnish},
		{"sysctls", b.tune},
	}
	network := []struct {
		what string
		step func(*Host) error
	}{
		{"interface programs", b.program},
		{"interfaces", b.plumb},
		{"overlays", b.overlay},
		{"bridges", b.bridge},
		{"addresses", b.address},
		{"routes", b.route},
		{"rules", b.filter},
		{"processes", b.startProcesses},
	}
	for _, s := range hosts {
		if err := b.eachHost(ctx, s.what, s.step); err != nil {
			return err
		}
	}
	b.lab.labs.progress("%d links", len(b.topology.Links))
	for _, l := range b.topology.Links {
		if err := b.wire(l); err != nil {
			return fmt.Errorf("link %s to %s: %w", l.A, l.B, err)
		}
	}
	for _, s := range network {
		if err := b.eachHost(ctx, s.what, s.step); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) eachHost(ctx context.Context, what string, step func(*Host) error) error {
	b.lab.labs.progress("%s of %d hosts", what, len(b.topology.Hosts))
	for i := range b.topology.Hosts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(&b.topology.Hosts[i]); err != nil {
			return fmt.Errorf("host %s: %w", b.topology.Hosts[i].Name, err)
		}
	}
	return nil
}

func (b *builder) namespace(host string) namespace {
	return namespace(b.lab.state.Host(host).Namespace)
}

// withHandle calls fn with a netlink socket that is in the host's namespace;
// it needs no thread there.
func (b *builder) withHandle(host string, fn func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPath(b.namespace(host).path())
	if err != nil {
		return err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	return fn(h)
}

func (b *builder) createNamespace(host *Host) error { return b.namespace(host.Name).create() }

// furnish makes the host's directory with its files, and a balancer's BPF file
// system.
func (b *builder) furnish(host *Host) error {
	dir := b.lab.state.Host(host.Name).Directory
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	files := map[string]string{}
	if host.Agent != nil {
		files[AgentFile] = host.Agent.YAML()
	}
	maps.Copy(files, host.Files)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := giveAway(dir, host.Owner); err != nil {
		return fmt.Errorf("owner %s: %w", host.Owner, err)
	}
	if host.Role != Balancer {
		return nil
	}
	pins := filepath.Join(dir, pinDir)
	if err := os.Mkdir(pins, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("bpf", pins, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount %s: %w", pins, err)
	}
	return nil
}

// giveAway makes an account the owner of a directory and of what is in it.
func giveAway(dir, owner string) error {
	if owner == "" {
		return nil
	}
	account, err := user.Lookup(owner)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(account.Gid)
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
}

func (b *builder) startProcesses(host *Host) error {
	for _, p := range host.Processes {
		if err := b.lab.start(host.Name, p); err != nil {
			return err
		}
	}
	return nil
}

// demolish removes everything that the state names, in the reverse order. It
// goes on after an error, and can be called again.
func demolish(dir string, s State) error {
	errs := []error{evict(s)}
	for _, h := range s.Hosts {
		errs = append(errs,
			unmount(filepath.Join(h.Directory, pinDir)),
			namespace(h.Namespace).remove())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// evict stops the processes that the state names and all others in the lab's
// namespaces, also those that were not written down because their starter was
// killed. Balancers are not asked: they would take leave of routers that go as
// well.
func evict(s State) error {
	var processes []ProcessState
	for _, h := range s.Hosts {
		processes = append(processes, h.Processes...)
		for _, p := range h.Processes {
			if h.Role == Balancer {
				_ = p.signal(unix.SIGKILL) // who survives this, or has ended, is seen to below
			}
		}
	}
	var errs []error
	// What the processes themselves started while they were stopped goes in the
	// second round.
	for range 2 {
		for _, h := range s.Hosts {
			found, err := namespace(h.Namespace).inhabitants()
			errs = append(errs, err)
			processes = append(processes, found...)
		}
		errs = append(errs, stop(processes, evictGrace))
		processes = nil
	}
	return errors.Join(errs...)
}
