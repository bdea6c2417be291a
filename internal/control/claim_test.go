// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/control"
)

// claim claims a socket until the test ends.
func claim(t *testing.T, path string) *control.Claim {
	t.Helper()
	c, err := control.ClaimSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Release(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// listen claims a socket and listens on it until the test ends.
func listen(t *testing.T, path string) (*control.Claim, net.Listener) {
	t.Helper()
	c := claim(t, path)
	l, err := c.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return c, l
}

func TestSocketMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "agent.sock")
	listen(t, path)
	for _, name := range []string{path, path + ".lock"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s, want 0600", name, info.Mode())
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v (%v), want the socket and its lock", entries, err)
	}
}

func TestSecondAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	first, socket := listen(t, path)
	refused := func(when string) {
		t.Helper()
		_, err := control.ClaimSocket(path)
		if want := "socket " + path + ": another agent has it"; err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", when, err, want)
		}
	}
	refused("the first agent runs")
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first agent's socket is gone: %v", err)
	}
	if err := errors.Join(conn.Close(), socket.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a closed socket remains: %v", err)
	}
	refused("the first agent still stops")
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	listen(t, path)
	if err := socket.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: error %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the first agent removed the second's socket: %v", err)
	}
}

// A killed agent leaves a socket that no process serves.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := errors.Join(dead.Close(), os.Chmod(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	listen(t, path)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
}

func TestNotASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := claim(t, path).Listen()
	if err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("error %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("the file became %q (%v)", text, err)
	}
}
