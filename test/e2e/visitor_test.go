// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// visitor is a connection to the web service that is kept open.
type visitor struct {
	net.Conn
	answers *bufio.Reader
	// server has answered its first request.
	server string
}

// visitors opens so many connections from the client. They are closed when the
// test ends.
func (l *lab) visitors(t *testing.T, count int) []*visitor {
	t.Helper()
	all := make([]*visitor, count)
	for i := range all {
		conn, err := l.Dial(t.Context(), "client", "tcp", net.JoinHostPort([]string{vip4, vip6}[i%2], "80"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		b := &visitor{Conn: conn, answers: bufio.NewReader(conn)}
		if b.server, err = b.ask(); err != nil {
			t.Fatal(err)
		}
		all[i] = b
	}
	return all
}

// ask asks for / and returns the name of the server that answers.
func (b *visitor) ask() (server string, err error) {
	if err := b.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(b, "GET / HTTP/1.1\r\nHost: fairlead\r\n\r\n"); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(b.answers, nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(body)), err
}
