// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
)

// maxLine is the longest line, in bytes with its end, that is answered: a
// connection with a longer one is closed. Servers have thousands of them.
const maxLine = 4096

// accept answers all connections, each in a goroutine of the group, until ctx
// ends.
func accept(ctx context.Context, group *errgroup.Group, listener *net.TCPListener, name string) error {
	for {
		conn, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return nil // ctx has ended
		}
		if err != nil {
			return fmt.Errorf("%s: %w", listener.Addr(), err)
		}
		group.Go(func() error {
			converse(ctx, conn, name)
			return nil
		})
	}
}

// converse answers the lines of one connection, each with one segment, until the
// client ends it or ctx does.
func converse(ctx context.Context, conn *net.TCPConn, name string) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	lines := bufio.NewReaderSize(conn, maxLine)
	answer := []byte(name + " ")
	prefix := len(answer)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		answer = append(answer[:prefix], line...)
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
