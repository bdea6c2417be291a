// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// Each way in which a connection can break is distinguished, at the line
// at which it happens.
func TestStreamBreakage(t *testing.T) {
	honest := func(line string) string { return "server1 " + line }
	for _, test := range []struct {
		want breakage
		// answer is how the server treats the third line.
		answer func(conn *net.TCPConn, line string) string
	}{
		{"", func(_ *net.TCPConn, line string) string { return honest(line) }},
		{misdirected, func(_ *net.TCPConn, line string) string { return "server2 " + line }},
		{corrupted, func(_ *net.TCPConn, line string) string { return honest("x" + line) }},
		{corrupted, func(*net.TCPConn, string) string { return honest("1 2\n") }},
		{corrupted, func(*net.TCPConn, string) string { return strings.Repeat("x", 1<<16) }},
		{unanswered, func(*net.TCPConn, string) string { return "" }},
		{unanswered, func(_ *net.TCPConn, line string) string { return strings.TrimSuffix(honest(line), "\n") }},
		{closed, func(conn *net.TCPConn, _ string) string { _ = conn.CloseWrite(); return "" }},
		{reset, func(conn *net.TCPConn, _ string) string { _ = conn.SetLinger(0); _ = conn.Close(); return "" }},
	} {
		conn := serve(t, func(conn *net.TCPConn, n int, line string) string {
			if n == 3 {
				return test.answer(conn, line)
			}
			return honest(line)
		})
		s := &stream{id: 1, timeout: 200 * time.Millisecond}
		s.attach(conn)
		var err error
		for err == nil && s.sent < 2*lineSteps {
			err = s.exchange()
		}
		broken, _ := errors.AsType[*brokenError](err)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("honest server: %v", err)
		case test.want != "" && (broken == nil || broken.how != test.want || s.sent != 3):
			t.Errorf("%s: got %v at line %d, want it at line 3", test.want, err, s.sent)
		}
		if s.server != "server1" {
			t.Errorf("%s: the first server is %q", test.want, s.server)
		}
	}
}

// A reset that comes between two lines is found at the next one.
func TestStreamResetBetweenLines(t *testing.T) {
	gone := make(chan struct{})
	conn := serve(t, func(conn *net.TCPConn, _ int, line string) string {
		_, _ = conn.Write([]byte("server1 " + line))
		_ = conn.SetLinger(0)
		_ = conn.Close()
		close(gone)
		return ""
	})
	s := &stream{timeout: time.Second}
	s.attach(conn)
	// The reset may overtake the answer that was sent before it.
	err := s.exchange()
	<-gone
	for err == nil {
		err = s.exchange()
	}
	if broken, ok := errors.AsType[*brokenError](err); !ok || broken.how != reset {
		t.Errorf("got %v, want a reset", err)
	}
}

// serve returns the client's side of a connection whose lines, counted from 1,
// are answered by fn.
func serve(t *testing.T, fn func(conn *net.TCPConn, n int, line string) string) net.Conn {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := listener.AcceptTCP()
		if err != nil {
			return
		}
		defer conn.Close()
		lines := bufio.NewReader(conn)
		for n := 1; ; n++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := conn.Write([]byte(fn(conn, n, line))); err != nil {
				return
			}
		}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = listener.Close()
		<-ended
	})
	return conn
}
