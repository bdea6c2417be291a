// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A stream sends lines of lineSteps lengths in turn, lineStep bytes apart: from a few
// bytes to most of a TCP segment.
const (
	lineStep  = 97
	lineSteps = 13
)

// breakage is how a connection broke.
type breakage string

const (
	unopened    breakage = "unopened"    // refused, or no answer
	reset       breakage = "reset"       // by a server without the connection
	closed      breakage = "closed"      // the server ended it
	unanswered  breakage = "unanswered"  // in time
	misdirected breakage = "misdirected" // another server answered
	corrupted   breakage = "corrupted"   // other bytes came back
)

// brokenError is the unexpected end of a connection.
type brokenError struct {
	how   breakage
	cause error
}

func (e *brokenError) Error() string {
	cause := e.cause
	if op, ok := errors.AsType[*net.OpError](cause); ok {
		cause = op.Err // the addresses are known
	}
	return fmt.Sprintf("%s: %v", e.how, cause)
}

func (e *brokenError) Unwrap() error { return e.cause }

// stream is a TCP connection with an echo server (netlab.Echo).
type stream struct {
	// id is in every line, so that the answers of two streams differ.
	id      uint64
	timeout time.Duration // of an answer

	conn    net.Conn
	answers *bufio.Reader
	// server sent the first answer; empty before that.
	server string
	sent   int
	line   []byte
}

func (s *stream) attach(conn net.Conn) {
	s.conn, s.answers = conn, bufio.NewReaderSize(conn, 2*lineStep*lineSteps)
}

// text describes the stream.
func (s *stream) text(to *Destination) string {
	if s.conn == nil {
		return "tcp to " + to.VIP.String()
	}
	return fmt.Sprintf("tcp %s to %s at %q after %d lines", s.conn.LocalAddr(), to.VIP, s.server, s.sent)
}

// exchange sends a line and receives it back from the server of the first one. Any
// other result is a *brokenError.
func (s *stream) exchange() error {
	if err := s.conn.SetDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	s.sent++
	s.line = fmt.Appendf(s.line[:0], "%d %d ", s.id, s.sent)
	for length := len(s.line) + s.sent%lineSteps*lineStep; len(s.line) < length; {
		s.line = append(s.line, byte('a'+len(s.line)%26))
	}
	s.line = append(s.line, '\n')
	if _, err := s.conn.Write(s.line); err != nil {
		return &brokenError{howBroken(err), err}
	}
	answer, err := s.answers.ReadSlice('\n')
	if err != nil {
		return &brokenError{howBroken(err), err}
	}
	return s.check(answer)
}

// check compares an answer with the line that was sent.
func (s *stream) check(answer []byte) error {
	name, echoed, _ := bytes.Cut(answer, []byte(" "))
	if !bytes.Equal(echoed, s.line) {
		return &brokenError{corrupted, fmt.Errorf("line %d: got %q, sent %q", s.sent, answer, s.line)}
	}
	if s.server == "" {
		s.server = string(name)
	}
	if string(name) != s.server {
		return &brokenError{misdirected, fmt.Errorf("line %d: answered by %s", s.sent, name)}
	}
	return nil
}

// howBroken classifies the errors of reading and writing. After a reset between two
// exchanges the next write returns a broken pipe.
func howBroken(err error) breakage {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return unanswered
	case errors.Is(err, io.EOF):
		return closed
	case errors.Is(err, bufio.ErrBufferFull):
		return corrupted
	default:
		return reset
	}
}

// flow is a UDP flow with echo servers (netlab.Echo).
type flow struct {
	conn net.Conn
	// servers of the service.
	servers *Presence
	// late is the time after which an answer doesn't count; 0: none is late.
	late time.Duration

	// sent numbers the datagrams; pending are the times of those without an answer.
	sent    int
	pending map[int]time.Time
	// server answered the datagram of the highest number, newest, at answered.
	server   string
	newest   int
	answered time.Time
	// moves are the times when another server answered though the last one was still
	// configured, and silence is how long the flow had sent nothing before the last one.
	moves   []time.Time
	silence time.Duration
	// last is when the newest datagram was sent, pause the time before that.
	last  time.Time
	pause time.Duration
}

func newFlow(conn net.Conn, servers *Presence, late time.Duration) *flow {
	return &flow{conn: conn, servers: servers, late: late, pending: map[int]time.Time{}}
}

// send sends the next datagram. An error is a loss, of this datagram or (ICMP) of an
// earlier one.
func (f *flow) send() {
	now := time.Now()
	if f.sent > 0 {
		f.pause = now.Sub(f.last)
	}
	f.last = now
	f.sent++
	f.pending[f.sent] = now
	_, _ = f.conn.Write([]byte(strconv.Itoa(f.sent)))
}

// receive takes answers until none is pending or the deadline is over.
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

// take records an answer. An answer that was overtaken doesn't move the flow.
func (f *flow) take(answer string, now time.Time) {
	server, text, _ := strings.Cut(answer, " ")
	number, err := strconv.Atoi(text)
	if sent, pending := f.pending[number]; err != nil || !pending || f.late > 0 && now.Sub(sent) > f.late {
		return
	}
	delete(f.pending, number)
	if number < f.newest {
		return
	}
	if f.server != "" && server != f.server && f.servers.lasted(f.server, f.answered) {
		f.moves, f.silence = append(f.moves, now), f.pause
	}
	f.server, f.newest, f.answered = server, number, now
}
