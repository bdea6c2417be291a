// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes a direction of a connection holds until the reader takes them.
const window = 64 << 10

// Conn is an end of a TCP connection in memory, which runs in the time of synctest. It has no socket options.
type Conn struct {
	local, remote netip.AddrPort
	peer          *Conn

	// link is of both ends.
	*link
	received    []byte
	end         error // of received, or nil
	closed      bool
	closedWrite bool
	read, write deadline
}

// link is the lock of both ends, and wakes the goroutines that wait.
type link struct {
	mu      sync.Mutex
	changed *sync.Cond
}

// deadline is a deadline of Read or Write; the zero time for none.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) expired() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// Connect returns both ends of a connection between two addresses.
func Connect(here, there netip.AddrPort) (a, b *Conn) {
	l := &link{}
	l.changed = sync.NewCond(&l.mu)
	a, b = &Conn{local: here, remote: there, link: l}, &Conn{local: there, remote: here, link: l}
	a.peer, b.peer = b, a
	return a, b
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.read.expired():
			return 0, os.ErrDeadlineExceeded
		case len(c.received) > 0:
			n := copy(b, c.received)
			c.received = c.received[n:]
			c.changed.Broadcast()
			return n, nil
		case c.end != nil:
			return 0, c.end
		}
		c.changed.Wait()
	}
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		room := window - len(c.peer.received)
		switch {
		case c.closed:
			return n, net.ErrClosed
		case c.closedWrite:
			return n, syscall.EPIPE
		case c.end != nil && !errors.Is(c.end, io.EOF):
			return n, c.end
		case c.peer.closed:
			return n, syscall.EPIPE
		case c.write.expired():
			return n, os.ErrDeadlineExceeded
		case room > 0:
			some := min(room, len(b)-n)
			c.peer.received = append(c.peer.received, b[n:n+some]...)
			c.changed.Broadcast()
			if n += some; n == len(b) {
				return n, nil
			}
		default:
			c.changed.Wait()
		}
	}
}

// CloseWrite ends the data that this end sends.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closedWrite = true
	c.finish(io.EOF)
	return nil
}

// finish ends the data that the peer receives. The caller holds the lock.
func (c *Conn) finish(end error) {
	if c.peer.end == nil {
		c.peer.end = end
	}
	c.changed.Broadcast()
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.finish(io.EOF)
	return nil
}

// Reset closes this end. The other one loses all that it hasn't read.
func (c *Conn) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.peer.received, c.peer.end = nil, syscall.ECONNRESET
	c.changed.Broadcast()
}

// Ended reports whether the other end sends nothing more.
func (c *Conn) Ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end != nil
}

// Take returns all that has arrived at this end since it was last read, without waiting.
func (c *Conn) Take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.received
	c.received = nil
	c.changed.Broadcast()
	return all
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(at time.Time) error {
	_ = c.SetReadDeadline(at) // the next line fails for the same reason
	return c.SetWriteDeadline(at)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(at time.Time) error { return c.setDeadline(&c.read, at) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(at time.Time) error { return c.setDeadline(&c.write, at) }

func (c *Conn) setDeadline(d *deadline, at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	d.at = at
	if d.timer != nil {
		d.timer.Stop()
	}
	if left := time.Until(at); !at.IsZero() && left > 0 {
		d.timer = time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed.Broadcast()
		})
	}
	c.changed.Broadcast()
	return nil
}

// SyscallConn implements syscall.Conn. Socket options are set on no socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return noSocket{}, nil }

type noSocket struct{}

func (noSocket) Control(func(uintptr)) error    { return nil }
func (noSocket) Read(func(uintptr) bool) error  { return nil }
func (noSocket) Write(func(uintptr) bool) error { return nil }
