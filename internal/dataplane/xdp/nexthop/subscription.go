// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// eventGroups returns the multicast groups of rtnetlink(7) that are listened to.
// Routes also change by what the kernel tells only with the last three: routing
// rules, and the next-hop objects that routes refer to.
func eventGroups() []int {
	return []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_NEXTHOP,
	}
}

// receiveBuffer is how many bytes of events wait for the reader: some ten
// thousand. More are lost, and the loss is noticed.
const receiveBuffer = 8 << 20

// errLost says that the kernel had to drop events.
var errLost = errors.New("events lost")

// subscription receives the kernel's events. It isn't nl.NetlinkSocket because
// that allocates 64 KiB for every message.
type subscription struct {
	file   *os.File
	conn   syscall.RawConn
	buffer []byte
}

// subscribe opens a subscription in the calling thread's network namespace.
func subscribe() (*subscription, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	s := &subscription{file: os.NewFile(uintptr(fd), "rtnetlink"), buffer: make([]byte, 1<<16)}
	if err := s.configure(fd); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *subscription) configure(fd int) error {
	// A large buffer needs CAP_NET_ADMIN; without it the kernel's limit holds.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return fmt.Errorf("receive buffer: %w", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	for _, group := range eventGroups() {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			return fmt.Errorf("group %d: %w", group, err)
		}
	}
	var err error
	s.conn, err = s.file.SyscallConn()
	return err
}

// receive waits for events. Their data is valid until the next call. The error
// is errLost after an overflow; close ends the wait with another.
func (s *subscription) receive() ([]syscall.NetlinkMessage, error) {
	var n int
	var from unix.Sockaddr
	var failed error
	err := s.conn.Read(func(fd uintptr) bool {
		n, from, failed = unix.Recvfrom(int(fd), s.buffer, 0)
		return !errors.Is(failed, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return nil, err
	case errors.Is(failed, unix.ENOBUFS):
		return nil, s.drain()
	case failed != nil:
		return nil, failed
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return nil, nil // not from the kernel
	}
	messages, err := syscall.ParseNetlinkMessage(s.buffer[:n])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	return messages, nil
}

// drain drops the events that still wait after an overflow. The kernel announces
// an overflow only once until the queue has been empty; what it drops till then
// must be covered by the reading of everything that follows.
func (s *subscription) drain() error {
	err := s.conn.Read(func(fd uintptr) bool {
		for {
			_, _, err := unix.Recvfrom(int(fd), s.buffer, 0)
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return true
			}
		}
	})
	return errors.Join(err, errLost)
}

func (s *subscription) close() error { return s.file.Close() }
