// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// badPeerAS is the notification of a speaker that expects another ASN.
var badPeerAS = Notification{Code: 2, Subcode: 2}

// badIdentifier is the one of a speaker that finds a router ID impossible.
var badIdentifier = Notification{Code: 2, Subcode: 3}

// broken says why a connection can't be used any more.
func broken(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "peer closed the connection"
	case errors.Is(err, net.ErrClosed), errors.Is(err, errEnded):
		return "session ended"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "peer reset the connection"
	}
	if number, ok := errors.AsType[unix.Errno](err); ok {
		return number.Error()
	}
	return err.Error()
}

// unreadable names a fault of what the peer sent.
func unreadable(n Notification) string { return "peer sent a bad message: " + n.String() }

// said is what a peer's notification means here.
func (c *conn) said(n Notification) string {
	if (Notification{Code: n.Code, Subcode: n.Subcode}) == badPeerAS {
		return fmt.Sprintf("peer says: bad peer AS: it doesn't expect AS %d here%s", c.local.ASN, c.itsASN())
	}
	if n.Code == 5 { // FRR's answer in the first second of a neighbour's life
		return "peer says: finite state machine error: it may not be ready yet"
	}
	return "peer says: " + n.String()
}

// itsASN tells the peer's own ASN if it has said it.
func (c *conn) itsASN() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return ""
	}
	return fmt.Sprintf(", and says that it is AS %d", c.open.ASN)
}

// answered is what the library's own notification means.
func (c *conn) answered(n Notification) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n == badPeerAS && c.open != nil:
		return fmt.Sprintf("bad peer AS: it is AS %d, configured is AS %d", c.open.ASN, c.peer.ASN)
	case n.Code == 4 && c.phase == established:
		return "hold timer expired: the peer was silent"
	case n == badIdentifier && c.open != nil && c.open.RouterID == c.local.RouterID:
		return fmt.Sprintf("bad BGP identifier %s: it is the node's own", c.open.RouterID)
	case n.Code == 4, n.Code == 6:
		return n.String()
	}
	return unreadable(n)
}
