// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// hurry keeps the goroutine on a thread that runs before all that have no
// real-time priority, so that neither a busy machine nor a busy agent makes peers
// wait (sched(7); lowest of the real-time priorities). The thread ends with the
// goroutine, which never unlocks it, and those that it starts are as others are.
func hurry() error {
	runtime.LockOSThread()
	attributes := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}
	if err := unix.SchedSetAttr(0, &attributes, 0); err != nil {
		return fmt.Errorf("real-time priority: %w", err)
	}
	return nil
}

// calm undoes hurry for the process's first thread, which the runtime keeps, though
// without ever using it again, when its goroutine has ended.
func calm() {
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0) // to give up is allowed
}

// rest leaves the processor to others for a moment: nobody who sends floods of
// packets should have it by way of the thread's priority.
func rest() {
	moment := unix.NsecToTimespec(int64(time.Millisecond))
	_ = unix.Nanosleep(&moment, nil) // a shorter one is as good
}

// waiter waits for a socket in the thread itself: Go's own waiting would wake it
// through a thread without its priority.
type waiter struct {
	in *socket
	// bell is an eventfd(2).
	bell int
}

func newWaiter(in *socket) (*waiter, error) {
	bell, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &waiter{in: in, bell: bell}, nil
}

// wait returns when there is something to receive, at the deadline, or when it is
// woken.
func (w *waiter) wait(deadline time.Time) error {
	timeout := unix.NsecToTimespec(int64(max(0, time.Until(deadline))))
	var err error
	failed := w.in.raw.Control(func(fd uintptr) {
		files := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(w.bell), Events: unix.POLLIN}}
		_, err = unix.Ppoll(files, &timeout, nil)
		if files[1].Revents != 0 {
			var count [8]byte
			_, _ = unix.Read(w.bell, count[:]) // it only stops the bell
		}
	})
	if errors.Is(err, unix.EINTR) {
		err = nil
	}
	return errors.Join(failed, err)
}

// wake makes wait return, also one that begins later.
func (w *waiter) wake() {
	one := [8]byte{0: 1, 7: 1} // not zero in any byte order
	_, _ = unix.Write(w.bell, one[:])
}

func (w *waiter) close() { _ = unix.Close(w.bell) }
