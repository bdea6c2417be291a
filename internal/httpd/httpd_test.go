// SPDX-License-Identifier: Apache-2.0

package httpd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/httpd"
	"fairlead.io/fairlead/test/await"
)

const connections = 8

// serve answers with "hello" until the test ends; "/long" takes until the client
// leaves.
func serve(t *testing.T) (address string, log *strings.Builder) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_, _ = io.WriteString(w, "begun")
		if control.Flush() == nil && control.SetReadDeadline(time.Time{}) == nil {
			<-r.Context().Done()
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	log = &strings.Builder{}
	server := &httpd.Server{Name: "test", Handler: mux, Connections: connections, Log: slog.New(slog.NewTextHandler(log, nil))}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), log
}

// dial connects, and says something if there is anything to say.
func dial(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

const request = "GET / HTTP/1.1\r\nHost: test\r\n\r\n"

// answer reads an answer's body, "" if there is none.
func answer(conn net.Conn) string {
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// Silent connections, and those that send a part of a request, are closed in time,
// so that other clients get their turn.
func TestSilentConnectionsAreClosed(t *testing.T) {
	address, _ := serve(t)
	for i := range connections {
		dial(t, address, []string{"", "G", "GET / HTTP/1.1\r\nX: "}[i%3])
	}
	if got := answer(dial(t, address, request)); got != "hello" {
		t.Errorf("the answer is %q", got)
	}
}

// Idle connections are kept, but not while all connections are in use: clients that send a
// request now and then don't keep others out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	address, _ := serve(t)
	first := dial(t, address, "")
	for range 2 {
		if _, err := io.WriteString(first, request); err != nil {
			t.Fatal(err)
		}
		if got := answer(first); got != "hello" {
			t.Fatalf("the answer to the first client is %q", got)
		}
	}
	for i := 2; i <= 3*connections; i++ {
		if got := answer(dial(t, address, request)); got != "hello" {
			t.Fatalf("the answer to client %d is %q", i, got)
		}
	}
}

// A server whose connections are all in use accepts no more until one is closed.
func TestConnectionsAreLimited(t *testing.T) {
	address, _ := serve(t)
	var long []net.Conn
	for range connections {
		conn := dial(t, address, "GET /long HTTP/1.1\r\nHost: test\r\n\r\n")
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		long = append(long, conn)
	}
	waiting := dial(t, address, request)
	if err := waiting.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one connection too many is answered: error %v", err)
	}
	if err := waiting.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	long[3].Close()
	if got := answer(waiting); got != "hello" {
		t.Errorf("after another connection has been closed the answer is %q", got)
	}
}

// Clients' errors can't fill the log.
func TestLogIsQuiet(t *testing.T) {
	address, log := serve(t)
	for _, text := range []string{
		"nonsense\r\n\r\n", "GET /?a;b HTTP/1.1\r\nHost: test\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02",
		"OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", fmt.Sprintf("GET / HTTP/1.1\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<16)),
	} {
		conn := dial(t, address, text)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}
	if log.Len() > 0 {
		t.Errorf("the log has\n%s", log)
	}
}
