// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ownNamespace is the network namespace of the thread that opens it.
const ownNamespace = "/proc/thread-self/ns/net"

// namespace is a network namespace.
type namespace struct {
	file *os.File
	info os.FileInfo
}

// openNamespace opens the calling thread's.
func openNamespace() (*namespace, error) {
	file, err := os.Open(ownNamespace)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return &namespace{file: file, info: info}, nil
}

// do runs fn on a thread in the namespace: the caller's if it is there, so that an agent
// needs no CAP_SYS_ADMIN.
func (n *namespace) do(fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if here, err := os.Stat(ownNamespace); err != nil {
		return err
	} else if os.SameFile(here, n.info) {
		return fn()
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("network namespace: %w", err)
			return
		}
		result <- fn()
	}()
	return <-result
}
