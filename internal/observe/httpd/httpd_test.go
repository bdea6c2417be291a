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
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/observe/httpd"
)

const connections = 8

// serve answers with "hello" until the test ends; "/long" takes until the client
// leaves.
func serve(t *testing.T) (address string, log *strings.Builder) {
	t.Helper()
	door, log := serveAtDoor(t)
	return door.Addr().String(), log
}

// door is a listener that counts who came in.
type door struct {
	net.Listener
	entered atomic.Int64
}

func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err == nil {
		d.entered.Add(1)
	}
	return conn, err
}

// await waits until so many came in: until then they wait in the kernel's queue, and
// come in all at once as soon as the server has a processor.
func (d *door) await(t *testing.T, entered int64) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); d.entered.Load() < entered; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d came in, want %d", d.entered.Load(), entered)
		}
	}
}

// serveAtDoor is serve, and returns the listener.
func serveAtDoor(t *testing.T) (listener *door, log *strings.Builder) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		defer httpd.Keep(r.Context())()
		control := http.NewResponseController(w)
		_, _ = io.WriteString(w, "begun")
		if control.Flush() == nil && control.SetReadDeadline(time.Time{}) == nil {
			<-r.Context().Done()
		}
	})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener = &door{Listener: tcp}
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
	return listener, log
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
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
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

// Many who hold connections and say nothing, or only the beginning of
// something, keep out nobody who asks.
func TestSilentOnesMakeRoom(t *testing.T) {
	address, _ := serve(t)
	var silent []net.Conn
	for i := range 10 * connections {
		silent = append(silent, dial(t, address, []string{"", "G", "GET / HTTP/1.1\r\nX: "}[i%3]))
		if i%7 == 0 {
			if got := answer(dial(t, address, request)); got != "hello" {
				t.Fatalf("with %d silent connections the answer is %q", i+1, got)
			}
		}
	}
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection that was silent for longest is still there")
	}
}

// A connection that asks again and again stays, and so does a long answer.
func TestBusyOnesStay(t *testing.T) {
	server, _ := serveAtDoor(t)
	address := server.Addr().String()
	busy, long := dial(t, address, ""), dial(t, address, "GET /long HTTP/1.1\r\nHost: test\r\n\r\n")
	begun := make([]byte, 4096)
	if _, err := long.Read(begun); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(busy)
	for i := range 4 * connections {
		if _, err := io.WriteString(busy, request); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		dial(t, address, "")
		server.await(t, int64(3+i)) // more than fit, at once, would send away anybody
	}
	if err := long.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := long.Read(begun); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the long answer ended: %v", err)
			}
			return
		}
	}
}

// A server whose connections are all kept serves no more, until one leaves.
func TestAllKept(t *testing.T) {
	address, _ := serve(t)
	var long []net.Conn
	for range connections {
		conn := dial(t, address, "GET /long HTTP/1.1\r\nHost: test\r\n\r\n")
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		long = append(long, conn)
	}
	if got := answer(dial(t, address, request)); got != "" {
		t.Errorf("one too many is answered %q", got)
	}
	long[3].Close()
	for deadline := time.Now().Add(10 * time.Second); answer(dial(t, address, request)) != "hello"; {
		if time.Now().After(deadline) {
			t.Fatal("who leaves makes no room")
		}
	}
}

// What clients say can't fill the log.
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
