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

// broken says why a connection can't be used any more.
func broken(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "peer closed the connection"
	case errors.Is(err, net.ErrClosed), errors.Is(err, errEnded):
		return "session ended"
	}
	return cause(err)
}

// unreadable names a fault of what the peer sent.
func unreadable(n Notification) string { return "peer sent a bad message: " + n.String() }

// cause names the error of a connection in words for an operator.
func cause(err error) string {
	var number unix.Errno
	if !errors.As(err, &number) {
		return err.Error()
	}
	switch number {
	case unix.ECONNRESET, unix.EPIPE:
		return "peer reset the connection"
	case unix.ETIMEDOUT:
		return "timed out"
	}
	return number.Error()
}

// said is what a peer's notification means here.
func (c *conn) said(n Notification) string {
	if (Notification{Code: n.Code, Subcode: n.Subcode}) == badPeerAS {
		return fmt.Sprintf("peer says: bad peer AS: it doesn't expect AS %d here%s", c.local.ASN, c.itsASN())
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
	case n.Code == 2 && n.Subcode == 3 && c.open != nil:
		return fmt.Sprintf("bad BGP identifier %s: it is the node's own", c.open.RouterID)
	}
	return n.String()
}
