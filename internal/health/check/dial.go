// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/health"
)

// way is the path of one probe.
type way struct{ health.Path }

// dialTCP connects along a path. Closing the connection resets it, so that
// probes leave no sockets in TIME_WAIT behind.
func (p way) dialTCP(ctx context.Context) (*net.TCPConn, error) {
	conn, err := p.dialer().DialTCP(ctx, "tcp", p.local(), p.Target)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetLinger(0)
}

// dialUDP opens a socket for datagrams to and from the target only, which receives
// of ICMP errors about them.
func (p way) dialUDP(ctx context.Context) (*net.UDPConn, error) {
	return p.dialer().DialUDP(ctx, "udp", p.local(), p.Target)
}

// until ends all that waits for a connection when ctx ends. The result is to be
// called when the connection isn't needed any more.
func until(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// A connection that is closed already waits for nothing.
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
}

// maxDatagram is how much of an answer is read, in bytes.
const maxDatagram = 4 << 10

// datagrams is a socket for datagrams to and from one target.
type datagrams interface {
	net.Conn
	net.PacketConn
}

// exchange sends a request, and reads answers until judge is done with one, or ctx
// ends. It closes the socket.
func exchange(ctx context.Context, conn datagrams, request []byte, judge func(answer []byte) (done bool, err error)) error {
	defer conn.Close()
	defer until(ctx, conn)()
	if _, err := conn.Write(request); err != nil {
		return err
	}
	buffer := make([]byte, maxDatagram)
	for {
		n, _, err := conn.ReadFrom(buffer) // of a raw socket, without the IPv4 header
		if err != nil {
			return err
		}
		if done, err := judge(buffer[:n]); done {
			return err
		}
	}
}

func (p way) dialer() *net.Dialer {
	return &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1, Control: p.control}
}

// local is the address to bind to; the zero AddrPort leaves it to the kernel.
func (p way) local() netip.AddrPort {
	if !p.Source.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(p.Source, 0)
}

// control prepares a socket before it is bound.
func (p way) control(_, _ string, raw syscall.RawConn) error {
	var err error
	failed := raw.Control(func(fd uintptr) { err = p.prepare(int(fd)) })
	return cmp.Or(failed, err)
}

// prepare marks a socket, and leaves its port open until it is connected: ports
// can be shared then by connections to different targets (ip(7)).
func (p way) prepare(fd int) error {
	if p.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(p.Mark)); err != nil {
			return fmt.Errorf("%w: socket mark: %w", health.ErrLocal, err)
		}
	}
	if !p.Source.IsValid() {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return fmt.Errorf("%w: socket option IP_BIND_ADDRESS_NO_PORT: %w", health.ErrLocal, err)
	}
	return nil
}

// MaxProbes is how many probes may be on their way at the same time: as many as
// would wait for silent backends, within half of the files that the process may
// open.
func MaxProbes() int {
	const most = 16384
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 256
	}
	return int(max(16, min(most, limit.Cur/2)))
}
