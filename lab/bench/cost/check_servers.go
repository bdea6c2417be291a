// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"

// ServeChecks sends an HTTP answer to any request to a listener until its input ends.
func ServeChecks(input io.Reader, listener net.Listener) error {
	go func() {
		_, _ = io.Copy(io.Discard, input)
		_ = listener.Close()
	}()
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

// CheckListener is the listener that a process of CheckConfig.Servers inherits.
func CheckListener() (net.Listener, error) { return net.FileListener(os.NewFile(3, "listener")) }

func serve(conn net.Conn) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1024)); err == nil {
		_, _ = io.WriteString(conn, answer)
	}
}

// listen accepts connections at all addresses of the loopback interface, and from no other
// machine.
func listen(ctx context.Context) (*net.TCPListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		failed := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") })
		return errors.Join(failed, err)
	}}
	listener, err := config.Listen(ctx, "tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil
}

// startServers starts a command that calls ServeChecks and ends with its standard input,
// also if this process is killed. It returns the port, and the function that ends it.
func startServers(ctx context.Context, command []string) (port uint16, stop func() error, err error) {
	listener, err := listen(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer listener.Close()
	inherited, err := listener.File()
	if err != nil {
		return 0, nil, err
	}
	defer inherited.Close()
	process := exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...)
	process.ExtraFiles = []*os.File{inherited}
	input, err := process.StdinPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		return 0, nil, fmt.Errorf("servers: %w", err)
	}
	stop = func() error { return errors.Join(input.Close(), process.Wait()) }
	return uint16(listener.Addr().(*net.TCPAddr).Port), stop, nil
}
