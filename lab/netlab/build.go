// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// pinDir is the BPF file system in a balancer's directory, which is removed with the
// lab.
const pinDir = "bpf"

// builder builds a topology.
type builder struct {
	topology *Topology
	lab      *Lab
}

// build creates everything in the order of dependencies. After an error demolish is
// called.
func (b *builder) build(ctx context.Context) error {
	var namespaces, links commands
	for _, h := range b.lab.state.Hosts {
		namespaces.add("netns add %s", h.Namespace)
	}
	for _, l := range b.topology.Links {
		links = append(links, l.command(b.topology, &b.lab.state))
	}
	if err := ownNamespace.batch("ip", namespaces); err != nil {
		return err
	}
	if err := b.eachHost(ctx, step{"directories", b.populate}, step{"sysctls", b.tune}); err != nil {
		return err
	}
	if err := ownNamespace.batch("ip", links); err != nil {
		return err
	}
	return b.eachHost(ctx,
		step{"interface programs", b.program},
		step{"networks", b.network},
		step{"processes", b.startProcesses},
	)
}

// network makes a host's network of its links, and loads its rules.
func (b *builder) network(host *Host) error {
	n := b.namespace(host.Name)
	err := n.batch("ip", host.commands())
	if err == nil {
		err = n.batch("bridge", host.forwarding())
	}
	if err == nil && host.Rules != "" {
		err = n.feed(host.Rules, "nft", "-f", "-")
	}
	return err
}

// step is a part of the building of each host.
type step struct {
	what string
	do   func(*Host) error
}

// eachHost takes one step after the other with all hosts.
func (b *builder) eachHost(ctx context.Context, steps ...step) error {
	for _, s := range steps {
		b.lab.labs.progress("%s of %d hosts", s.what, len(b.topology.Hosts))
		for i := range b.topology.Hosts {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.do(&b.topology.Hosts[i]); err != nil {
				return fmt.Errorf("host %s: %w", b.topology.Hosts[i].Name, err)
			}
		}
	}
	return nil
}

func (b *builder) namespace(host string) namespace {
	return namespace(b.lab.state.Host(host).Namespace)
}

// populate creates the host's directory with its files, and a balancer's BPF file
// system.
func (b *builder) populate(host *Host) error {
	dir := b.lab.state.Host(host.Name).Directory
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	files := map[string]string{}
	if host.Agent != nil {
		files[AgentFile] = host.Agent.YAML()
		if host.Agent.BGP != nil {
			files[passwordFile] = password + "\n"
		}
	}
	maps.Copy(files, host.Files)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := Chown(dir, host.Owner); err != nil {
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

// Chown makes an account the owner of a directory with its files; empty: none.
func Chown(dir, owner string) error {
	if owner == "" {
		return nil
	}
	if output, err := exec.Command("chown", "-R", owner+":", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

func (b *builder) startProcesses(host *Host) error {
	for _, p := range host.Processes {
		if err := b.lab.start(host.Name, p); err != nil {
			return err
		}
	}
	return nil
}

// demolish removes everything that the state names. It can be called again after an
// error.
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

// evict stops the processes of the state and all others in the lab's namespaces, also
// those missing in the state because their starter was killed. Agents are killed: their
// orderly shutdown would wait for routers that are stopped too.
func evict(s State) error {
	var processes []ProcessState
	for _, h := range s.Hosts {
		processes = append(processes, h.Processes...)
		for _, p := range h.Processes {
			if h.Role == Balancer {
				_ = p.signal(unix.SIGKILL) // stop handles those that survive or have ended
			}
		}
	}
	var errs []error
	// The second round is for processes that were started during the first.
	for range 2 {
		for _, h := range s.Hosts {
			found, err := namespace(h.Namespace).processes()
			errs = append(errs, err)
			processes = append(processes, found...)
		}
		errs = append(errs, stop(processes, evictGrace))
		processes = nil
	}
	return errors.Join(errs...)
}

// tune sets a host's sysctls, before interfaces inherit the values of "default".
// Sysctls outside of "net." would be the whole machine's.
func (b *builder) tune(host *Host) error {
	settings := map[string]string{}
	for line := range strings.Lines(render("sysctl.conf", string(host.Role))) {
		if name, value, found := strings.Cut(line, " = "); found {
			settings[name] = strings.TrimSpace(value)
		}
	}
	maps.Copy(settings, host.Sysctls)
	return b.namespace(host.Name).do(func() error {
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			if !strings.HasPrefix(name, "net.") || strings.Contains(name, "/") {
				return fmt.Errorf("sysctl %q: want a dotted name below net", name)
			}
			path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
			if err := os.WriteFile(path, []byte(settings[name]), 0o644); err != nil {
				return fmt.Errorf("sysctl %s: %w", name, err)
			}
		}
		return nil
	})
}
