// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DefaultDir is where labs are kept unless a test keeps its own.
const DefaultDir = "/run/fairlead/labs"

// Bounds on how long Up waits for traffic and how long a lab that another
// process is changing is waited for: a little longer, so that an Up that fails
// is over by then.
const (
	readyTimeout = 15 * time.Second
	lockTimeout  = 20 * time.Second
)

// Labs are the labs of one directory.
type Labs struct {
	// Dir is an absolute path; every lab has a folder of its name in it.
	Dir string
	// Progress, if not nil, is told in a few words what is being done.
	Progress func(line string)
}

// Lab is a topology that is up. Its methods may be called from several
// goroutines, and from several processes that opened the same lab.
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
// been answered. If anything goes wrong, or ctx ends, everything that was made
// is removed again. A name that is in use is an error and disturbs nothing.
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
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("topology %s: %w", t.Name, err)
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
		l.progress("removing what was made")
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

// Open returns a lab that some process has brought up.
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

// State returns a copy of what the lab consists of, as this process knows it.
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

// Down stops the lab's processes, and all others in its namespaces, and
// removes every trace of it. If something can't be removed the lab stays
// listed, and Down can be called again.
func (l *Lab) Down(ctx context.Context) error {
	return l.change(ctx, func() error { return demolish(l.dir, l.state) })
}

// change calls fn with the newest state while nobody else changes the lab.
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

// newest reads the state again; it is an error if the lab is gone, or if there
// is another one of the same name.
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

// Do calls fn on a thread inside a host's namespace. Sockets that fn opens
// itself belong to the host; goroutines that it starts are elsewhere.
func (l *Lab) Do(host string, fn func() error) error {
	l.mu.Lock()
	h := l.state.Host(host)
	l.mu.Unlock()
	if h == nil {
		return fmt.Errorf("lab %s: no host %s", l.state.Name, host)
	}
	return namespace(h.Namespace).do(fn)
}

// Reroute replaces the route of a host to the same destination.
func (l *Lab) Reroute(host string, r Route) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("lab %s: host %s: %w", l.state.Name, host, err)
	}
	return l.Do(host, func() error {
		h, err := netlink.NewHandle()
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		defer h.Close()
		route, err := kernelRoute(h, r)
		if err == nil {
			err = h.RouteReplace(route)
		}
		if err != nil {
			return fmt.Errorf("lab %s: host %s: route %s: %w", l.state.Name, host, r.Destination, err)
		}
		return nil
	})
}

// Dial opens a connection from a host. The address is numeric: there are no
// names in a lab.
func (l *Lab) Dial(ctx context.Context, host, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := l.Do(host, func() error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Exec replaces this process by a command in a host's namespace. It returns
// only if that is impossible.
func (l *Lab) Exec(host string, args, env []string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return l.Do(host, func() error { return unix.Exec(program, args, env) })
}
