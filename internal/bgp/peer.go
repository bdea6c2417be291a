// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Peer is one configured neighbour. The zero value of a field that is optional
// is what RFC 4271 has without it.
type Peer struct {
	// Address is unicast and has no zone; no two peers have the same one.
	Address netip.Addr
	// ASN is the peer's; another one than the speaker's makes the session eBGP.
	ASN uint32
	// Port is where the peer listens, 0 for Port.
	Port uint16
	// LocalAddress is the speaker's end of the session; the zero Addr leaves it to
	// the kernel.
	LocalAddress netip.Addr
	// Passive waits for the peer to connect instead of connecting.
	Passive bool
	// Password keys the TCP segments (RFC 2385); the zero Secret is none.
	Password Secret
	// Multihop is the number of hops that an eBGP peer may be away: 2 to 255, or
	// 0, which means directly connected.
	Multihop uint8
	// TTLSecurity, if not 0, is how many hops away packets may come from, 1 to 254:
	// others are dropped (RFC 5082). It excludes Multihop.
	TTLSecurity uint8
	// HoldTime is how long the peer may be silent: whole seconds, at least three,
	// or 0 for ever (RFC 4271 §4.2).
	HoldTime time.Duration
	// RestartTime is how long the peer is asked to keep routes when the session
	// ends without a word (RFC 4724): whole seconds up to 4095, 0 for not at all.
	RestartTime time.Duration
	// BFD watches the peer; nil: nobody does.
	BFD *BFD
}

// External reports whether the session is eBGP.
func (p *Peer) External(local Local) bool { return p.ASN != local.ASN }

// Equal compares by value.
func (p *Peer) Equal(o *Peer) bool {
	a, b := *p, *o
	sameBFD := a.BFD == b.BFD || a.BFD != nil && b.BFD != nil && *a.BFD == *b.BFD
	a.BFD, b.BFD = nil, nil
	return a == b && sameBFD
}

// TTL is the time to live of packets to the peer, 0 if that is left to the kernel:
// a direct eBGP peer is one hop away (RFC 4271 has it so by custom), and with TTL
// security packets start with the highest one, by which the peer knows how far
// they have come (RFC 5082 §3).
func (p *Peer) TTL(local Local) uint8 {
	switch {
	case p.TTLSecurity > 0:
		return 255
	case !p.External(local):
		return 0
	}
	return max(1, p.Multihop)
}

// BFD is how a peer is watched (RFC 5880).
type BFD struct {
	// Interval is between two packets in each direction, Multiplier how many may be
	// missing: 10 ms to 60 s, and 1 to 255.
	Interval   time.Duration
	Multiplier uint8
}

// DefaultBFD finds a dead peer within 300 ms.
var DefaultBFD = BFD{Interval: 100 * time.Millisecond, Multiplier: 3}

// Secret says where a password is kept. It never holds the password itself, so
// that it can be logged and compared.
type Secret struct {
	// File is a path, Env the name of an environment variable; one of them is set.
	File, Env string
}

// maxPassword is what the kernel takes (TCP_MD5SIG_MAXKEYLEN).
const maxPassword = 80

// Read returns the password: what the file has up to its first line's end, or the
// variable's value. An empty one is an error; errors don't tell what was read.
func (s Secret) Read() (string, error) {
	password, place := os.Getenv(s.Env), "environment variable "+s.Env
	if s.File != "" {
		place = "file " + s.File
		text, err := os.ReadFile(s.File)
		if err != nil {
			return "", fmt.Errorf("password: %w", err)
		}
		password, _, _ = strings.Cut(string(text), "\n")
		password = strings.TrimSuffix(password, "\r")
	}
	if n := len(password); n == 0 || n > maxPassword {
		return "", fmt.Errorf("password: %s has %d bytes: want 1 to %d", place, n, maxPassword)
	}
	return password, nil
}

// CheckPassword says why Secret.Read could not return a password from a file that
// has nothing but it; nil if it could. The error doesn't tell the password.
func CheckPassword(password []byte) error {
	if n := len(password); n == 0 || n > maxPassword {
		return fmt.Errorf("password has %d bytes: want 1 to %d", n, maxPassword)
	}
	if bytes.ContainsAny(password, "\n\r\x00") {
		return errors.New("password has a line's end")
	}
	return nil
}
