// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaceDir is the directory of ip-netns(8), which thus lists the namespaces of
// labs too.
const namespaceDir = "/run/netns"

// namespace is the name of a network namespace below namespaceDir.
type namespace string

// ownNamespace is the caller's, which has no name.
const ownNamespace namespace = ""

func (n namespace) path() string { return filepath.Join(namespaceDir, string(n)) }

func (n namespace) exists() bool {
	_, err := os.Lstat(n.path())
	return err == nil
}

// remove removes the name, if it exists; the kernel destroys the namespace with all its
// devices when no process is left in it.
func (n namespace) remove() error {
	if err := unmount(n.path()); err != nil {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	if err := os.Remove(n.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	return nil
}

// do calls fn on a thread in the namespace. Goroutines that fn starts aren't in it.
func (n namespace) do(fn func() error) error {
	if n == ownNamespace {
		return fn()
	}
	ns, err := netns.GetFromPath(n.path())
	if err != nil {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	defer ns.Close()
	return OnThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("namespace %s: %w", n, err)
		}
		return fn()
	})
}

// run runs a command in the namespace and returns its output. The error of one that fails
// has its error output.
func (n namespace) run(cmd *exec.Cmd) (stdout string, err error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// A child is born in the namespace of the thread that forks it.
	if err = n.do(cmd.Start); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", cmd.Args, err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.String(), err
}

// feed runs a program that reads commands.
func (n namespace) feed(input string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(input)
	_, err := n.run(cmd)
	return err
}

// batch runs the commands of ip(8) or bridge(8) in the namespace.
func (n namespace) batch(program string, c commands) error {
	if len(c) == 0 {
		return nil
	}
	err := n.feed(strings.Join(c, "\n"), program, "-batch", "-")
	if err == nil {
		return nil
	}
	// The program only has the line's number.
	for i := range c {
		if strings.HasSuffix(err.Error(), fmt.Sprintf("Command failed -:%d", i+1)) {
			return fmt.Errorf("%s: %w", c[i], err)
		}
	}
	return err
}

// OnThread calls fn on a thread that then ends, so that fn may leave it in any
// namespace.
func OnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Without an unlock the runtime ends the thread with the goroutine.
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- fn()
			return
		}
		// The process's first thread never ends, and its namespace is the process's
		// in /proc/PID/ns: use another one.
		done <- OnThread(fn)
		runtime.UnlockOSThread()
	}()
	return <-done
}

// isolated is the variable with the identifier of the process that Isolate has put into a namespace.
const isolated = "FAIRLEAD_NETLAB_ISOLATED"

// Isolate starts this program again, in a network namespace of its own whose loopback
// interface is up; there it returns nil. It does nothing without root. A TestMain calls it
// so that tests can use any port and leave nothing. Children share the namespace, but for workers that
// fuzz: the process that started them uses the same ports.
func Isolate() error {
	if os.Geteuid() != 0 {
		return nil
	}
	process, at := strconv.Itoa(os.Getpid()), os.Getenv(isolated)
	if at == process || at != "" && !slices.Contains(os.Args, "-test.fuzzworker") {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := os.Setenv(isolated, process); err != nil {
			return err
		}
		return unix.Exec(program, os.Args, os.Environ())
	})
}

// unmount removes all mounts from path, if there are any.
func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}
