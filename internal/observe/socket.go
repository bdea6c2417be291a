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

// Socket is the agent's end of a control socket. It is a net.Listener.
type Socket struct {
	*net.UnixListener
	path string
	// lock is held as long as the socket is open, and by nobody if its agent is
	// dead.
	lock *os.File
}

// Listen claims the control socket at path, of mode 0600, and creates the
// folder it is in if need be. What a dead agent left is replaced; a socket that
// an agent serves, and a file that is no socket, are errors.
func Listen(path string) (*Socket, error) {
	s, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return s, nil
}

func listen(path string) (*Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	lock, err := claim(path + ".lock")
	if err != nil {
		return nil, err
	}
	listener, err := bind(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Socket{UnixListener: listener, path: path, lock: lock}, nil
}

// claim takes the lock that keeps two agents from sharing a socket. The kernel
// lets go of it when the process ends, however it ends. The file stays, since
// removing it would let two agents lock two files of the same name.
func claim(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another agent has it")
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
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

// Close removes the socket and then lets go of it.
func (s *Socket) Close() error {
	err := s.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err // the path may be another agent's by now
	}
	return errors.Join(err, os.Remove(s.path), s.lock.Close())
}
