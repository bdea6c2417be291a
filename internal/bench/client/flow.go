// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// flow is a UDP flow with echo servers (netlab.Echo).
type flow struct {
	conn net.Conn
	// servers are those of the service.
	servers *Presence

	// sent numbers the datagrams; pending are those that were not answered.
	sent    int
	pending map[int]struct{}
	// server has answered the datagram of the highest number, newest, at the time
	// heard.
	server string
	newest int
	heard  time.Time
	// moved is set when another server answers though the last one is still
	// there.
	moved bool
}

func newFlow(conn net.Conn, servers *Presence) *flow {
	return &flow{conn: conn, servers: servers, pending: map[int]struct{}{}}
}

// send sends the next datagram. That it can't be sent is a loss like others: an
// ICMP error of an earlier one is reported here as well.
func (f *flow) send() {
	f.sent++
	f.pending[f.sent] = struct{}{}
	_, _ = f.conn.Write([]byte(strconv.Itoa(f.sent)))
}

// receive takes answers until none is awaited any more or the deadline is over.
func (f *flow) receive(deadline time.Time) error {
	if err := f.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	buffer := make([]byte, 128)
	for len(f.pending) > 0 {
		n, err := f.conn.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // an ICMP error: a loss
		default:
			f.take(string(buffer[:n]), time.Now())
		}
	}
	return nil
}

// take notes an answer. Who answers a datagram after a later one has been
// answered says nothing of where the flow goes now.
func (f *flow) take(answer string, now time.Time) {
	server, text, _ := strings.Cut(answer, " ")
	number, err := strconv.Atoi(text)
	if _, awaited := f.pending[number]; err != nil || !awaited {
		return
	}
	delete(f.pending, number)
	if number < f.newest {
		return
	}
	if f.server != "" && server != f.server && f.servers.lasted(f.server, f.heard) {
		f.moved = true
	}
	f.server, f.newest, f.heard = server, number, now
}
