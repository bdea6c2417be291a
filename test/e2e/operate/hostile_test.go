// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

// door is something that an agent listens on.
type door struct {
	name string
	dial func(context.Context) (net.Conn, error)
	// question is a path that is answered.
	question string
}

// Clients that can connect to an agent may send anything: the agent continues, others are
// answered, and neither memory nor files grow without bound. FuzzRequest of
// internal/control and internal/observe/web sends random requests to handlers.
func TestHostileClients(t *testing.T) {
	l := bringUp(t, "hostile", harness.ECMP(t, lb.L2DSR))
	h := l.State().Host("lb1")
	page := harness.Status(t, h).Listen
	doors := []door{
		{"control socket", func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", h.Socket) }, "/v1/status"},
		{"status page", func(ctx context.Context) (net.Conn, error) { return l.Dial(ctx, h.Name, "tcp", page) }, "/api/v1/status"},
	}
	pid := harness.Status(t, h).PID
	before := harness.Memory(t, pid)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			t.Run("malformed", d.checkMalformed)
			t.Run("slow", func(t *testing.T) { d.checkSlow(t, pid) })
		})
	}
	if s := harness.Status(t, h); s.PID != pid {
		t.Errorf("the agent was process %d and is %d", pid, s.PID)
	}
	if grown := harness.Memory(t, pid) - before; grown > 64<<20 {
		t.Errorf("the agent has grown by %d bytes", grown)
	}
	l.Gets(t, "client", harness.Origin(harness.VIP4), 20)
	checkLogIsShort(t, h)
}

// malformed are requests that no honest client sends.
func malformed() []string {
	long := strings.Repeat("a", 1<<20)
	const host = "Host: 127.0.0.1\r\n"
	return []string{
		"\r\n\r\n",
		"\x00\x01\x02\xff\xfe\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // TLS
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET / HTTP/9.9\r\n" + host + "\r\n",
		"GET /" + long + " HTTP/1.1\r\n" + host + "\r\n",
		"GET / HTTP/1.1\r\nX: " + long + "\r\n\r\n",
		long,
		"GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 1<<14) + "\r\n",
		"GET / HTTP/1.1\r\n\r\n", // no host
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "X : y\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "X: \x00\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n",
		"GET /nosuch HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n",
		"GET /nosuch HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
		"POST /v1/status HTTP/1.1\r\n" + host + "Content-Length: 99999999999\r\n\r\nx",
		"BREW /v1/status HTTP/1.1\r\n" + host + "\r\n",
		"CONNECT 10.0.2.1:80 HTTP/1.1\r\n" + host + "\r\n",
		"OPTIONS * HTTP/1.1\r\n" + host + "\r\n",
		"GET http://127.0.0.1/etc/passwd HTTP/1.1\r\n" + host + "\r\n",
		"GET /../../etc/passwd HTTP/1.1\r\n" + host + "\r\n",
		"GET /assets/..%2f..%2fetc%2fpasswd HTTP/1.1\r\n" + host + "\r\n",
	}
}

// checkMalformed sends malformed requests.
func (d door) checkMalformed(t *testing.T) {
	for _, text := range malformed() {
		if got := d.send(t, text, true); got >= 200 && got < 300 {
			t.Errorf("%.60q: status %d", text, got)
		}
	}
	pipeline := strings.Repeat("GET "+d.question+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 1000)
	if got := d.send(t, pipeline, false); got != http.StatusOK {
		t.Errorf("a thousand requests at once: status %d", got)
	}
	d.checkHonest(t)
}

// send writes a text, and perhaps that there is no more of it, and returns the
// status of the first answer; 0 is none.
func (d door) send(t *testing.T, text string, ends bool) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	go func() { // the server may answer and leave before it has read everything
		_, _ = io.WriteString(conn, text)
		if half, ok := conn.(interface{ CloseWrite() error }); ok && ends {
			_ = half.CloseWrite()
		}
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%.60q: neither an answer nor an end", text)
	}
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// checkSlow holds many connections: some say nothing, some begin requests and
// go on byte by byte, and some ask and never read the answers.
func (d door) checkSlow(t *testing.T, pid int) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range 600 {
		conn, err := d.dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go trickle(ctx, conn, d.beginning(i))
		if i%30 == 29 {
			d.checkHonest(t)
		}
	}
	for range 20 {
		d.checkHonest(t)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > 400 {
		t.Errorf("the agent has %d files open", len(files))
	}
}

// beginning returns the bytes that a slow client sends at once.
func (d door) beginning(i int) string {
	switch i % 4 {
	case 0:
		return ""
	case 1:
		return "GET " + d.question + " HTTP/1.1\r\nX: "
	case 2:
		return "POST " + d.question + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"
	default: // asks for more than the kernel keeps for who doesn't read
		return strings.Repeat("GET "+d.question+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 100)
	}
}

// trickle sends a beginning at once and then a byte every now and then, until the
// connection is closed.
func trickle(ctx context.Context, conn net.Conn, beginning string) {
	_, err := io.WriteString(conn, beginning)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for err == nil {
		select {
		case <-tick.C:
			_, err = conn.Write([]byte("a"))
		case <-ctx.Done():
			return
		}
	}
}

// checkHonest asks as an honest client does.
func (d door) checkHonest(t *testing.T) {
	t.Helper()
	if got := d.send(t, "GET "+d.question+" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", false); got != http.StatusOK {
		t.Errorf("an honest client has status %d", got)
	}
}

// checkLogIsShort fails if clients have filled an agent's log.
func checkLogIsShort(t *testing.T, h *netlab.HostState) {
	t.Helper()
	info, err := os.Stat(h.Directory + "/agent.log")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 64<<10 {
		t.Errorf("the agent's log has %d bytes", info.Size())
	}
}
