// SPDX-License-Identifier: Apache-2.0

package httpd

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// crowd is a listener whose connections are bounded. Where there is one too
// many, the one that has been silent for longest is closed: an honest client
// asks as soon as it has connected, and is through in a moment.
type crowd struct {
	net.Listener
	most int

	mu sync.Mutex
	// conns are in the order in which they were last heard of. Those that are kept
	// are only counted.
	conns list.List
	kept  int
}

func newCrowd(l net.Listener, most int) *crowd { return &crowd{Listener: l, most: most} }

// Accept waits for a connection, and makes room for it.
func (c *crowd) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	joined := &conn{Conn: accepted, crowd: c}
	if silent := c.join(joined); silent != nil {
		_ = silent.Close()
	}
	return joined, nil
}

// join returns the connection that has to leave for this one, nil if there is
// room. That can be the new one itself, if all others are kept.
func (c *crowd) join(joined *conn) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	joined.place = c.conns.PushBack(joined)
	if c.conns.Len()+c.kept <= c.most {
		return nil
	}
	return c.conns.Front().Value.(*conn)
}

// conn is a connection of a crowd.
type conn struct {
	net.Conn
	crowd *crowd

	// The rest is guarded by the crowd's lock. place is nil while the connection
	// is kept, and once it has left.
	place      *list.Element
	kept, left bool
}

// Close leaves the crowd.
func (c *conn) Close() error {
	c.crowd.mu.Lock()
	c.unlist()
	if c.kept {
		c.kept = false
		c.crowd.kept--
	}
	c.left = true
	c.crowd.mu.Unlock()
	return c.Conn.Close()
}

// unlist takes the connection out of the list. The caller holds the lock.
func (c *conn) unlist() {
	if c.place != nil {
		c.crowd.conns.Remove(c.place)
		c.place = nil
	}
}

// heard puts the connection last in the order of silence.
func (c *conn) heard() {
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	if c.place != nil {
		c.crowd.conns.MoveToBack(c.place)
	}
}

// keep lets the connection stay however silent it is.
func (c *conn) keep() {
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	if c.left || c.kept {
		return
	}
	c.unlist()
	c.kept = true
	c.crowd.kept++
}

// release is the end of keep.
func (c *conn) release() {
	c.crowd.mu.Lock()
	defer c.crowd.mu.Unlock()
	if !c.kept {
		return
	}
	c.kept = false
	c.crowd.kept--
	c.place = c.crowd.conns.PushBack(c)
}

type connKey struct{}

// remember is http.Server's ConnContext.
func remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *conn { return ctx.Value(connKey{}).(*conn) }

// Keep lets a request's connection stay, also when there are too many, until
// release is called. It is for answers that take long; the caller bounds their
// number, well below the server's connections.
func Keep(ctx context.Context) (release func()) {
	c := connOf(ctx)
	c.keep()
	return c.release
}
