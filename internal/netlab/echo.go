// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sync/errgroup"
)

// maxDatagram is the largest UDP payload (RFC 768) in bytes.
const maxDatagram = 65507

// Echo answers every datagram, and every line of a TCP connection, that comes to
// one of the addresses with the server's name, a blank and what came, until ctx
// ends; it then returns nil. Each address gets sockets of its own, so that the
// answer comes from the address that was asked, as clients of a VIP expect.
func Echo(ctx context.Context, name string, addresses []netip.AddrPort) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, a := range addresses {
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(a))
		if err != nil {
			return err
		}
		defer listener.Close()
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(a))
		if err != nil {
			return err
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() {
			_ = listener.Close()
			_ = conn.Close()
		})
		defer stop()
		group.Go(func() error { return answer(conn, name) })
		group.Go(func() error { return accept(ctx, group, listener, name) })
	}
	return group.Wait()
}

func answer(conn *net.UDPConn, name string) error {
	prefix := []byte(name + " ")
	buffer := make([]byte, len(prefix)+maxDatagram)
	copy(buffer, prefix)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer[len(prefix):])
		if errors.Is(err, net.ErrClosed) {
			return nil // ctx has ended
		}
		if err != nil {
			return fmt.Errorf("%s: %w", conn.LocalAddr(), err)
		}
		// A client that can't be answered is no reason to leave the others alone.
		_, _ = conn.WriteToUDPAddrPort(buffer[:len(prefix)+n], from)
	}
}
