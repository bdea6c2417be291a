// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Machine is a set of namespaces and the processes in them. Its first process does
// nothing but wait for the test's to end: they share a pipe. When it ends the kernel
// kills all processes of the machine, and with them go its mounts and its network,
// since nothing else holds them.
type Machine struct {
	name string
	// dir has the logs of the machine's processes.
	dir string
	// spaces are the kinds of namespaces (unix.CLONE_NEW…) that it has of its own.
	spaces int
	init   *exec.Cmd
	// leash keeps the first process alive until it is closed.
	leash io.Closer
}

// firstProcess reads until the leash is closed. A shell that waits for a child also
// collects orphans, as the first process of a PID namespace has to.
const firstProcess = "cat; :"

// boot makes a machine with namespaces of these kinds, of which CLONE_NEWPID is
// always one. What prepare says is run by the machine's first process, a shell,
// before it waits.
func boot(name, dir string, spaces int, prepare string) (*Machine, error) {
	m := &Machine{name: name, dir: dir, spaces: spaces | unix.CLONE_NEWPID}
	m.init = exec.Command("sh", "-ec", prepare+"\n"+firstProcess)
	m.init.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: uintptr(m.spaces)}
	leash, err := m.init.StdinPipe()
	if err != nil {
		return nil, err
	}
	m.leash = leash
	if err := m.init.Start(); err != nil {
		return nil, fmt.Errorf("machine %s: %w", name, err)
	}
	return m, nil
}

// cut ends the machine as a power cut does: all its processes are killed at once.
// It returns when they are gone.
func (m *Machine) cut() error {
	if err := m.init.Process.Kill(); err != nil {
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	// The kernel lets the first process be collected only after all others.
	err := m.init.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // killed
	}
	return err
}

// Do calls fn on a thread inside the machine. What fn does itself, such as opening
// sockets and starting commands, is done there; goroutines that it starts are
// elsewhere.
func (m *Machine) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Without an unlock the runtime ends the thread with the goroutine.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The process's first thread never ends: occupy it, and take another.
			done <- m.Do(fn)
			runtime.UnlockOSThread()
			return
		}
		if err := m.enter(); err != nil {
			done <- fmt.Errorf("machine %s: %w", m.name, err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// enter takes the thread into the machine, for good. Its children are born there.
func (m *Machine) enter() error {
	pidfd, err := unix.PidfdOpen(m.init.Process.Pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	// Threads of a process share their working directory, which those in different
	// mount namespaces can't.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(pidfd, m.spaces); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	return nil
}

// Start starts a command inside the machine.
func (m *Machine) Start(cmd *exec.Cmd) error { return m.Do(cmd.Start) }

// Run runs a command inside the machine and returns what it printed to its standard
// output; the error has what it printed to the other.
func (m *Machine) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	return m.output(cmd)
}

func (m *Machine) output(cmd *exec.Cmd) (string, error) {
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := m.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s: %s: %w: %s", m.name, cmd, err, strings.TrimSpace(complaints.String()))
	}
	return out.String(), nil
}

// Dial opens a connection from the machine. The address is numeric.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := m.Do(func() error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
