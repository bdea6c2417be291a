// SPDX-License-Identifier: Apache-2.0

package gobgp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Caller is a connection before the library has it.
type Caller struct {
	*net.TCPConn
	// RouterID is who calls, by its OPEN; zero if it has said nothing yet, or
	// something else.
	RouterID netip.Addr
	// opening is what has been read.
	opening []byte
}

// Where an OPEN message has the BGP identifier, and its length with it
// (RFC 4271 §4.2).
const (
	identifierAt  = headerSize + 5
	identifierEnd = identifierAt + 4
)

// Greet waits for a caller's first message: several peers may have one address,
// and only that says which of them it is. Whatever else it says, the library will
// answer it. An error means that nothing came in time.
func Greet(conn *net.TCPConn, patience time.Duration) (*Caller, error) {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	c := &Caller{TCPConn: conn, opening: make([]byte, headerSize)}
	if _, err := io.ReadFull(conn, c.opening); err != nil {
		return nil, errors.New("says nothing")
	}
	size := int(binary.BigEndian.Uint16(c.opening[16:]))
	if c.opening[18] == wire.BGP_MSG_OPEN && size >= identifierEnd && size <= maxOpen {
		c.opening = append(c.opening, make([]byte, size-headerSize)...)
		if _, err := io.ReadFull(conn, c.opening[headerSize:]); err != nil {
			return nil, errors.New("says nothing more")
		}
		c.RouterID = netip.AddrFrom4([4]byte(c.opening[identifierAt:identifierEnd]))
	}
	return c, conn.SetReadDeadline(time.Time{})
}

// maxOpen is how long an OPEN message may be (RFC 4271 §4).
const maxOpen = 4096
