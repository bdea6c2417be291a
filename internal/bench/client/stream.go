// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The lengths of lines, so many bytes apart, that a stream sends in turn: from
// a few bytes to most of a segment.
const (
	lineStep  = 97
	lineSteps = 13
)

// breakage is how a connection broke.
type breakage string

const (
	unopened    breakage = "unopened"    // it was refused, or nobody answered
	reset       breakage = "reset"       // by a server that doesn't know it
	closed      breakage = "closed"      // the server ended it
	unanswered  breakage = "unanswered"  // in time
	misdirected breakage = "misdirected" // another server answered
	corrupted   breakage = "corrupted"   // other bytes came back
)

// brokenError is the end of a connection that should have lived.
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
	// id is in every line, so that no answer can be another stream's.
	id uint64
	// patience is how long an answer may take.
	patience time.Duration

	conn    net.Conn
	answers *bufio.Reader
	// server is the one that answered first; empty before that.
	server string
	sent   int
	line   []byte
}

func (s *stream) attach(conn net.Conn) {
	s.conn, s.answers = conn, bufio.NewReaderSize(conn, 2*lineStep*lineSteps)
}

// text says between whom the stream is, for people.
func (s *stream) text(to *Target) string {
	if s.conn == nil {
		return "tcp to " + to.VIP.String()
	}
	return fmt.Sprintf("tcp %s to %s at %q after %d lines", s.conn.LocalAddr(), to.VIP, s.server, s.sent)
}

// exchange sends a line and waits until all of it has come back from the server
// of the first one. What else happens is a *brokenError.
func (s *stream) exchange() error {
	if err := s.conn.SetDeadline(time.Now().Add(s.patience)); err != nil {
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

// howBroken names what reading and writing meet. After a reset that came between
// two exchanges the next write meets a broken pipe.
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
