// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// BoundSocket is a TCP socket that is bound to a port of 127.0.0.1 and doesn't listen. It holds the port until the
// test ends, so connections to it are refused.
func BoundSocket(t testing.TB) (fd int, at netip.AddrPort) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	loopback := [4]byte{127, 0, 0, 1}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, netip.AddrPortFrom(netip.AddrFrom4(loopback), uint16(name.(*unix.SockaddrInet4).Port))
}
