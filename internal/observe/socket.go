// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Claim is the right to serve one control socket, and to be the agent there:
// one process at a time has it.
type Claim struct {
	path string
	lock *os.File
}

// ClaimSocket takes the right to the control socket at path, and creates the
// folder it is in if need be. It is an error if another process has it. The
// kernel lets go of it when the process ends, however it ends.
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

// Release gives the right back. The lock's file stays: removing it would let
// two agents lock two files of the same name.
func (c *Claim) Release() error { return c.lock.Close() }

// Listen makes the socket, of mode 0600; closing it removes it. What a dead
// agent left there is replaced; a file that is no socket is an error.
func (c *Claim) Listen() (net.Listener, error) {
	l, err := bind(c.path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", c.path, err)
	}
	return &listener{UnixListener: l, path: c.path}, nil
}

// listener is a socket that has been moved to path.
type listener struct {
	*net.UnixListener
	path string
}

// Close removes the socket. If it was closed before, the path may be another
// one's by now.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	return errors.Join(err, os.Remove(l.path))
}

// bind makes the socket in a folder that only we can enter, and moves it to
// its place when its mode is set: nobody can connect to it before. The umask
// would do as well, but it is the whole process's.
func bind(path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, errors.New("there is a file that is no socket")
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	hidden := filepath.Join(private, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // it would unlink the hidden name
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
