// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"

// ServeChecks accepts connections at all addresses of the loopback interface until its input
// ends, and sends an HTTP answer to any request. It first writes the port, on a line.
func ServeChecks(ctx context.Context, input io.Reader, output io.Writer) error {
	config := net.ListenConfig{Control: onLoopback}
	listener, err := config.Listen(ctx, "tcp4", "0.0.0.0:0")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		_ = listener.Close()
	}()
	if _, err := fmt.Fprintln(output, listener.Addr().(*net.TCPAddr).Port); err != nil {
		return errors.Join(err, listener.Close())
	}
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err == nil { // a probe may be over before it is accepted
			go serve(conn)
		}
	}
}

// onLoopback makes a socket unreachable from other machines.
func onLoopback(_, _ string, raw syscall.RawConn) error {
	var err error
	failed := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") })
	return errors.Join(failed, err)
}

func serve(conn net.Conn) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1024)); err == nil {
		_, _ = io.WriteString(conn, answer)
	}
}

// servers is the answering process.
type servers struct {
	process *exec.Cmd
	input   io.Closer
	port    uint16
}

// startServers starts a command that calls ServeChecks and ends with its standard input,
// also if this process is killed.
func startServers(ctx context.Context, command []string) (*servers, error) {
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	s := &servers{process: process, input: input}
	if _, err := fmt.Fscan(bufio.NewReader(output), &s.port); err != nil {
		return nil, errors.Join(fmt.Errorf("servers: no port: %w", err), s.stop())
	}
	return s, nil
}

func (s *servers) stop() error {
	return errors.Join(s.input.Close(), s.process.Wait())
}
