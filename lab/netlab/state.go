// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// State is the content of lab.json in the lab's directory. It suffices to remove the
// lab.
type State struct {
	Name     string    `json:"name"`
	Topology string    `json:"topology"`
	Created  time.Time `json:"created"`
	// Ready is set when every probe has been answered; false in a lab whose creator was
	// killed.
	Ready bool        `json:"ready"`
	Hosts []HostState `json:"hosts"`
}

// HostState is one host of a lab that is up.
type HostState struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Software is the topology's: "frr", "bird" or "gobgp" of a router.
	Software  string `json:"software,omitempty"`
	Namespace string `json:"namespace"`
	// Addresses of the interfaces, VIPs of the loopback.
	Addresses  []netip.Addr `json:"addresses"`
	VIPs       []netip.Addr `json:"vips,omitempty"`
	Interfaces []string     `json:"interfaces"`
	// Socket is the absolute path of the control socket; empty if there is none.
	Socket string `json:"socket,omitempty"`
	// Directory holds the host's files and logs.
	Directory string `json:"directory"`
	// Processes are the running and the stopped ones.
	Processes []ProcessState `json:"processes,omitempty"`
}

// ProcessState is a process that was started in a host. The start time distinguishes it
// from a later process with the same number.
type ProcessState struct {
	Process
	// PID is 0 if the process was stopped.
	PID int `json:"pid,omitempty"`
	// StartTime is in clock ticks since boot: field 22 of /proc/PID/stat.
	StartTime uint64 `json:"startTime,omitempty"`
}

// Host returns the host of that name, or nil.
func (s State) Host(name string) *HostState {
	return find(s.Hosts, func(h *HostState) bool { return h.Name == name })
}

// Process returns the host's process of that name, or nil.
func (h *HostState) Process(name string) *ProcessState {
	return find(h.Processes, func(p *ProcessState) bool { return p.Name == name })
}

// ReplaceFile atomically replaces a file in the host's directory.
func (h *HostState) ReplaceFile(name, text string) error {
	return replaceFile(filepath.Join(h.Directory, name), []byte(text))
}

func replaceFile(path string, text []byte) error {
	if err := os.WriteFile(path+".next", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".next", path)
}

func newState(name, dir string, t *Topology) State {
	s := State{Name: name, Topology: t.Name, Created: time.Now().UTC().Round(0)}
	for _, h := range t.Hosts {
		host := HostState{
			Name: h.Name, Role: h.Role, Software: h.Software,
			Namespace:  "fl-" + name + "-" + h.Name,
			Addresses:  []netip.Addr{},
			VIPs:       h.Loopback,
			Interfaces: []string{},
			Directory:  filepath.Join(dir, h.Name),
		}
		for _, d := range h.devices() {
			host.Interfaces = append(host.Interfaces, d.Name)
			host.Addresses = append(host.Addresses, hostAddresses(d.Addresses)...)
		}
		if h.Socket != "" {
			host.Socket = filepath.Join(host.Directory, h.Socket)
		}
		s.Hosts = append(s.Hosts, host)
	}
	return s
}

func stateFile(dir string) string { return filepath.Join(dir, "lab.json") }

// readState returns an error that wraps fs.ErrNotExist if dir isn't a lab's.
func readState(dir string) (State, error) {
	var s State
	text, err := os.ReadFile(stateFile(dir))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", stateFile(dir), err)
	}
	return s, nil
}

func writeState(dir string, s State) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(stateFile(dir), append(text, '\n'))
}

// claim atomically creates the lab's directory with its state file. It returns an
// error that wraps fs.ErrExist if the directory exists.
func claim(dir string, s State) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	// CheckName keeps dots out of the names of labs.
	draft, err := os.MkdirTemp(filepath.Dir(dir), "."+s.Name+".")
	if err != nil {
		return err
	}
	err = writeState(draft, s)
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, draft, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(draft))
	}
	return nil
}

// lock locks the lab against other processes and calls until the returned function is
// called. It waits until ctx ends.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = Await(ctx, Poll, func() error {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return fmt.Errorf("another process is changing it: lock: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// listStates returns the states of all labs below base, by name.
func listStates(base string) ([]State, error) {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return []State{}, nil
	}
	if err != nil {
		return nil, err
	}
	states := []State{}
	for _, e := range entries {
		if CheckName(e.Name()) != nil {
			continue
		}
		s, err := readState(filepath.Join(base, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // being removed
		}
		if err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, nil
}
