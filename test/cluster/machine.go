// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/netlab"
)

// Machine is a set of namespaces and the processes in them. Its first process does
// nothing but wait for the test's to end: they share a pipe. When it ends the kernel
// kills all processes of the machine, and with them go its mounts and its network,
// since nothing else holds them.
type Machine struct {
	name string
	// dir has the files and logs of the machine's processes.
	dir string
	// spaces are the kinds of namespaces (unix.CLONE_NEW…) that it has of its own.
	spaces int
	init   *exec.Cmd
	// leash keeps the first process alive: it is closed when the test's ends.
	leash io.Closer
}

// waitForEnd is the end of the script of every machine's first process, a shell: it
// says that the machine is ready, and reads until the leash is closed. A shell that
// waits for a child also collects orphans, as the first process of a PID namespace
// has to.
const waitForEnd = "\necho ready\ncat\n:\n"

// boot makes a machine with namespaces of these kinds, of which CLONE_NEWPID is
// always one. Its first process is a shell that runs the script, which ends with
// waitForEnd. The machine has a folder of its own for logs below dir.
func boot(name, dir string, spaces int, script string, args ...string) (*Machine, error) {
	m := &Machine{name: name, dir: filepath.Join(dir, name), spaces: spaces | unix.CLONE_NEWPID}
	m.init = exec.Command("sh", append([]string{"-ec", script, name}, args...)...)
	m.init.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: uintptr(m.spaces &^ unix.CLONE_NEWCGROUP)}
	var complaints bytes.Buffer
	m.init.Stderr = &complaints
	leash, err := m.init.StdinPipe()
	if err != nil {
		return nil, err
	}
	m.leash = leash
	said, err := m.init.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, err
	}
	if err := m.init.Start(); err != nil {
		return nil, fmt.Errorf("machine %s: %w", name, err)
	}
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		err = errors.Join(err, m.cut()) // which collects its error output
		return nil, fmt.Errorf("machine %s: %s: %w", name, strings.TrimSpace(complaints.String()), err)
	}
	return m, nil
}

// cut ends the machine as a power cut does: all its processes are killed at once.
// It returns when they are gone.
func (m *Machine) cut() error {
	if err := m.init.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	// The kernel lets the first process be collected only after all others.
	err := m.init.Wait()
	if _, killed := errors.AsType[*exec.ExitError](err); killed {
		return nil
	}
	return err
}

// Do calls fn on a thread inside the machine. Sockets that fn opens and commands
// that it starts are there; goroutines that it starts are elsewhere.
func (m *Machine) Do(fn func() error) error {
	return netlab.OnThread(func() error {
		if err := m.enter(); err != nil {
			return fmt.Errorf("machine %s: %w", m.name, err)
		}
		return fn()
	})
}

// enter takes the thread into the machine, for good. Its children are born there.
func (m *Machine) enter() error {
	pidfd, err := unix.PidfdOpen(m.pid(), 0)
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

// Run runs a command inside the machine and returns its standard output; the error
// has its standard error.
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

// HTTP is a client on the machine. It opens a connection for every request.
func (m *Machine) HTTP() *http.Client {
	const timeout = 5 * time.Second
	return &http.Client{
		Transport: &http.Transport{DialContext: m.Dial, DisableKeepAlives: true},
		Timeout:   timeout,
	}
}

// Name is the machine's, as "router".
func (m *Machine) Name() string { return m.name }

// pid returns the first process's ID, as the test sees it.
func (m *Machine) pid() int { return m.init.Process.Pid }

// Enter returns the beginning of a command line that runs a program on the machine from a
// shell elsewhere: in its network, and with its files and processes if it has its own.
func (m *Machine) Enter() []string {
	args := []string{"nsenter", "--target", strconv.Itoa(m.pid()), "--net"}
	if m.spaces&unix.CLONE_NEWNS != 0 {
		args = append(args, "--mount", "--pid")
	}
	if m.spaces&unix.CLONE_NEWUTS != 0 {
		args = append(args, "--uts")
	}
	return append(args, "--")
}
