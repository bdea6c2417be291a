// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// nginxConfig is the name of nginx's configuration file in a host's directory.
const nginxConfig = "nginx.conf"

// nginxText makes nginx answer every request on the port with the server's name, and
// /client with the client's address.
func nginxText(name string, port uint16) string {
	return render(nginxConfig, map[string]any{"Name": name, "Port": port})
}

// nginx runs with the host's directory as prefix instead of the machine's folders. It has no option -e,
// which Ubuntu 22.04's 1.18 doesn't know: the configuration says where errors go.
func nginx() Process {
	return Process{Name: "nginx", Args: []string{"nginx", "-p", ".", "-c", nginxConfig}}
}

// ServeSizes has the host's nginx answer SizePath of each size by a file of so many bytes, its
// header in a packet of its own, and close a connection after so many requests.
func (h *Host) ServeSizes(port uint16, requests int, sizes ...int) {
	if h.Files == nil {
		h.Files = map[string]string{}
	}
	h.Files[nginxConfig] = render(nginxConfig, map[string]any{"Name": h.Name, "Port": port, "Requests": requests})
	for _, size := range sizes {
		h.Files[SizePath(size)[1:]] = strings.Repeat("x", size)
	}
	if !slices.ContainsFunc(h.Processes, func(p Process) bool { return p.Name == nginx().Name }) {
		h.Processes = append(h.Processes, nginx())
	}
}

// SizePath is the path of a file of so many bytes. All paths have the same length, and a wrk's
// request to an IPv4 address of eight characters has 44 bytes, as in the dissertation's table C.1.
func SizePath(size int) string { return fmt.Sprintf("/%010d", size) }

// maxDatagram is the largest UDP payload (RFC 768) in bytes.
const maxDatagram = 65507

// Echo answers datagrams and lines over TCP at the addresses with the server's name, a
// blank and the content, until ctx ends; it then returns nil. Each address has its own
// sockets, so that the answer comes from the address of the request.
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
		// The other clients are served even if one can't be answered.
		_, _ = conn.WriteToUDPAddrPort(buffer[:len(prefix)+n], from)
	}
}

// maxLine is the longest line in bytes, its end included; longer ones close the
// connection. It bounds the memory of thousands of connections.
const maxLine = 4096

// accept serves all connections in goroutines of the group until ctx ends.
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
			serveLines(ctx, conn, name)
			return nil
		})
	}
}

// serveLines answers the lines of one connection, each with one write.
func serveLines(ctx context.Context, conn *net.TCPConn, name string) {
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
