// SPDX-License-Identifier: Apache-2.0

// Package control is the control socket of an agent or a route reflector: its
// server, its client, and the lock that lets one process at a time serve it. The
// agent runs the server; commands, labs and tests use the client. Over the socket
// the agent is shown, traced, drained and reloaded.
package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// DefaultSocket is an agent's control socket unless another one is given.
const DefaultSocket = "/run/fairlead/agent.sock"

// Claim is the exclusive right to serve one control socket.
type Claim struct {
	path string
	lock *os.File
}

// ClaimSocket locks the control socket at path, and creates its folder if it is
// missing. It is an error if another process has the lock. The kernel releases the
// lock when the process ends.
func ClaimSocket(path string) (*Claim, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another agent has it")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), lock.Close())
	}
	return &Claim{path: path, lock: lock}, nil
}

// Release unlocks the socket. The lock's file stays: removing it would let
// two agents lock two files of the same name.
func (c *Claim) Release() error { return c.lock.Close() }

// Listen creates the socket with mode 0600; closing it removes it. A socket that a
// killed agent left is replaced; any other file is an error.
func (c *Claim) Listen() (net.Listener, error) {
	if info, err := os.Lstat(c.path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("socket %s: the file there is not a socket", c.path)
		}
		if err := os.Remove(c.path); err != nil {
			return nil, fmt.Errorf("socket %s: %w", c.path, err)
		}
	}
	config := net.ListenConfig{Control: private}
	return config.Listen(context.Background(), "unix", c.path)
}

// private sets a socket's mode before bind(2), which creates the file with it: no
// other user can ever connect. The umask would do as well, but it is the whole
// process's.
func private(_, _ string, socket syscall.RawConn) error {
	var err error
	failed := socket.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
	return errors.Join(failed, err)
}
