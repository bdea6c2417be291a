// SPDX-License-Identifier: Apache-2.0

// Package netlab builds small networks of real routers, servers and clients out of
// network namespaces, for cmd/fairlab, lab/demo, lab/bench and tests.
//
// A [Topology] is a pure value. [Labs.Up] turns it into namespaces, veth pairs,
// bridges, addresses, routes and running processes; [Lab.Down] removes everything.
// The lab's state is written into its directory before it is built, so that another
// process can remove a lab whose creator was killed.
//
// Frames on a lab's links are complete, as XDP programs expect them: checksums are
// computed by the sender and VLAN tags are in the frame (link.go).
package netlab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultDir is where labs are kept unless a test keeps its own.
const DefaultDir = "/run/fairlead/labs"

const (
	// readyTimeout bounds how long Up waits for traffic: a busy machine takes 20 s to start
	// three agents with the race detector.
	readyTimeout = 30 * time.Second
	// lockTimeout bounds the wait for another process that changes the lab. It is
	// longer than an Up that fails.
	lockTimeout = 40 * time.Second
)

var nameSyntax = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// CheckName returns an error if name can't be a lab's or a host's: 1 to 32
// lower-case letters, digits and hyphens, with no hyphen at either end.
func CheckName(name string) error {
	if !nameSyntax.MatchString(name) {
		return fmt.Errorf("bad name %q: want 1 to 32 lower-case letters, digits and inner hyphens", name)
	}
	return nil
}

// Labs are the labs of one directory.
type Labs struct {
	// Dir is an absolute path; every lab has a folder of its name in it.
	Dir string
	// Progress, if not nil, receives one line at each step.
	Progress func(line string)
}

// Lab is a topology that is up. Its methods are safe for concurrent use, also by
// several processes.
type Lab struct {
	labs Labs
	dir  string

	mu    sync.Mutex
	state State
}

func (l Labs) progress(format string, args ...any) {
	if l.Progress != nil {
		l.Progress(fmt.Sprintf(format, args...))
	}
}

// Up builds the topology under the given name and returns when its probes have
// been answered. On an error, or if ctx ends, it removes everything again. A name
// that is in use is an error and changes nothing, and so are missing programs.
func (l Labs) Up(ctx context.Context, name string, t Topology) (*Lab, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	lab, err := l.up(ctx, name, &t)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	return lab, nil
}

func (l Labs) up(ctx context.Context, name string, t *Topology) (*Lab, error) {
	if err := CheckPrograms(t.Programs()...); err != nil {
		return nil, err
	}
	dir := filepath.Join(l.Dir, name)
	lab := &Lab{labs: l, dir: dir, state: newState(name, dir, t)}
	for _, h := range lab.state.Hosts {
		if namespace(h.Namespace).exists() && !l.exists(name) {
			return nil, fmt.Errorf("namespace %s exists and is not a lab's in %s", h.Namespace, l.Dir)
		}
	}
	err := claim(dir, lab.state)
	if errors.Is(err, fs.ErrExist) {
		return nil, errors.New("already exists: take it down first or choose another name")
	}
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	b := &builder{topology: t, lab: lab}
	err = b.build(ctx)
	if err == nil {
		err = lab.awaitReady(ctx, t)
	}
	if err == nil {
		lab.state.Ready = true
		err = writeState(dir, lab.state)
	}
	if err != nil {
		l.progress("removing the lab")
		return nil, errors.Join(err, demolish(dir, lab.state))
	}
	return lab, nil
}

func (l Labs) exists(name string) bool {
	_, err := readState(filepath.Join(l.Dir, name))
	return err == nil
}

// List returns the labs by name.
func (l Labs) List() ([]State, error) { return listStates(l.Dir) }

// Open returns a lab that is up.
func (l Labs) Open(name string) (*Lab, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	dir := filepath.Join(l.Dir, name)
	state, err := readState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("lab %s: no such lab in %s", name, l.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	return &Lab{labs: l, dir: dir, state: state}, nil
}

// Dir is the lab's directory, with lab.json and one folder for each host.
func (l *Lab) Dir() string { return l.dir }

// State returns a copy of the state that this process knows.
func (l *Lab) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state
	s.Hosts = slices.Clone(s.Hosts)
	for i := range s.Hosts {
		s.Hosts[i].Processes = slices.Clone(s.Hosts[i].Processes)
	}
	return s
}

// Hosts returns the hosts of a role.
func (l *Lab) Hosts(role Role) []HostState {
	return slices.DeleteFunc(l.State().Hosts, func(h HostState) bool { return h.Role != role })
}

// Down stops all processes in the lab's namespaces and removes the lab. If something
// can't be removed the lab stays listed, and Down can be called again. A lab that is nil has
// nothing to remove.
func (l *Lab) Down(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return l.change(ctx, func() error { return demolish(l.dir, l.state) })
}

// change calls fn with the newest state and the lab locked.
func (l *Lab) change(ctx context.Context, fn func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	unlock, err := lock(ctx, l.dir)
	if err == nil {
		defer unlock()
		l.state, err = newest(l.dir, l.state)
	}
	if err == nil {
		err = fn()
	}
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.state.Name, err)
	}
	return nil
}

// newest reads the state again; it is an error if the lab was removed or replaced.
func newest(dir string, known State) (State, error) {
	state, err := readState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return known, errors.New("it has been taken down")
	}
	if err != nil {
		return known, err
	}
	if !state.Created.Equal(known.Created) {
		return known, errors.New("it has been taken down, and another one brought up")
	}
	return state, nil
}

// Do calls fn on a thread in a host's namespace. Goroutines that fn starts aren't in
// it.
func (l *Lab) Do(host string, fn func() error) error {
	l.mu.Lock()
	h := l.state.Host(host)
	l.mu.Unlock()
	if h == nil {
		return fmt.Errorf("lab %s: no host %s", l.state.Name, host)
	}
	return namespace(h.Namespace).do(fn)
}

// Dial opens a connection from a host to a numeric address.
func (l *Lab) Dial(ctx context.Context, host, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := l.Do(host, func() error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Exec replaces this process by a command in a host's namespace. It returns only on
// an error.
func (l *Lab) Exec(host string, args, env []string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return l.Do(host, func() error { return unix.Exec(program, args, env) })
}
