// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaceDir is where ip-netns(8) keeps named network namespaces, so that
// its users see those of a lab as well.
const namespaceDir = "/run/netns"

// namespace is the name of a network namespace below namespaceDir.
type namespace string

func (n namespace) path() string { return filepath.Join(namespaceDir, string(n)) }

func (n namespace) exists() bool {
	_, err := os.Lstat(n.path())
	return err == nil
}

// create makes the namespace and gives it its name. The name must be free.
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
	err = onOwnThread(func() error {
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

// remove takes the name away; the kernel destroys the namespace with all its
// devices when no process is left in it. A name that isn't there is no error.
func (n namespace) remove() error {
	if err := unmount(n.path()); err != nil {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	if err := os.Remove(n.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	return nil
}

// do calls fn on a thread that is in the namespace. Goroutines that fn starts
// are not.
func (n namespace) do(fn func() error) error {
	ns, err := netns.GetFromPath(n.path())
	if err != nil {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	defer ns.Close()
	return onOwnThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("namespace %s: %w", n, err)
		}
		return fn()
	})
}

// onOwnThread calls fn on an operating system thread that runs nothing else
// before it dies, so that fn may leave it in any namespace.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Without an unlock the runtime ends the thread with the goroutine.
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- fn()
			return
		}
		// The process's first thread never ends, and /proc/PID/ns shows its
		// namespace as the whole process's: occupy it, and take another one.
		done <- onOwnThread(fn)
		runtime.UnlockOSThread()
	}()
	return <-done
}

// shareNamespaceDir makes namespaceDir a shared mount of its own, as
// ip-netns(8) does: a namespace that is removed here then also goes from the
// mount namespaces that "ip netns exec" makes, and dies.
func shareNamespaceDir() error {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(namespaceDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Two at once would mount it twice; closing the file gives the lock back.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", namespaceDir, err)
	}
	err = unix.Mount("", namespaceDir, "", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// It is no mount point yet.
	if err := unix.Mount(namespaceDir, namespaceDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", namespaceDir, err)
	}
	return unix.Mount("", namespaceDir, "", unix.MS_SHARED|unix.MS_REC, "")
}

// unmount takes every mount from path; what is no mount point or isn't there
// is left as it is.
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
