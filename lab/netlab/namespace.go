// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaceDir is the directory of ip-netns(8), which thus lists the namespaces of
// labs too.
const namespaceDir = "/run/netns"

// namespace is the name of a network namespace below namespaceDir.
type namespace string

func (n namespace) path() string { return filepath.Join(namespaceDir, string(n)) }

func (n namespace) exists() bool {
	_, err := os.Lstat(n.path())
	return err == nil
}

// create creates the namespace. The name must be free.
func (n namespace) create() error {
	if err := shareNamespaceDir(); err != nil {
		return err
	}
	f, err := os.OpenFile(n.path(), os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	err = OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		return unix.Mount("/proc/thread-self/ns/net", n.path(), "", unix.MS_BIND, "")
	})
	if err != nil {
		return errors.Join(fmt.Errorf("namespace %s: %w", n, err), os.Remove(n.path()))
	}
	return nil
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

// shareNamespaceDir makes namespaceDir a shared mount, as ip-netns(8) does: a removed
// namespace then also disappears from the mount namespaces of "ip netns exec".
func shareNamespaceDir() error {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(namespaceDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Concurrent calls would mount it twice. Closing the file releases the lock.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", namespaceDir, err)
	}
	err = unix.Mount("", namespaceDir, "", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// It isn't a mount point yet.
	if err := unix.Mount(namespaceDir, namespaceDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", namespaceDir, err)
	}
	return unix.Mount("", namespaceDir, "", unix.MS_SHARED|unix.MS_REC, "")
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
