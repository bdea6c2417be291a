// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"time"
)

// Peer is the configuration of one peer.
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
	// Password of TCP MD5 signatures (RFC 2385); the zero Secret is none.
	Password Secret
	// Multihop is how many hops an eBGP peer may be away: 2 to 255, or 0 if it is
	// directly connected.
	Multihop uint8
	// TTLSecurity, if not 0, is how many hops the peer may be away, 1 to 254: other
	// packets are dropped (RFC 5082). It excludes Multihop.
	TTLSecurity uint8
	// HoldTime is how long the peer may be silent: whole seconds, at least three, or 0
	// for no limit (RFC 4271 §4.2).
	HoldTime time.Duration
	// RestartTime is how long the peer is to keep routes when the connection is lost
	// (RFC 4724): whole seconds up to 4095, 0 for no graceful restart.
	RestartTime time.Duration
	// BFD is how BFD watches the peer; nil for no BFD.
	BFD *BFD
}

// External reports whether the session is eBGP.
func (p *Peer) External(local Local) bool { return p.ASN != local.ASN }

// Equal compares by value.
func (p *Peer) Equal(o *Peer) bool {
	return reflect.DeepEqual(p, o)
}

// TTL is the TTL of packets to the peer, 0 for the kernel's default. By convention it is
// 1 for a directly connected eBGP peer. With TTL security it is the maximum (RFC 5082
// §3).
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
	// Interval is the time between two packets in each direction, 10 ms to 60 s,
	// Multiplier how many may be lost, 1 to 255.
	Interval   time.Duration
	Multiplier uint8
	// Path decides whether there may be routers in between.
	Path BFDPath
}

// BFDPath is the kind of path that a BFD session is over. Both ends have to agree.
type BFDPath uint8

// The kinds of paths. ByRoute is multihop if the route to the peer has a gateway.
const (
	ByRoute   BFDPath = iota
	SingleHop         // RFC 5881
	Multihop          // RFC 5883
)

// DefaultBFD detects a failure within 300 ms.
var DefaultBFD = BFD{Interval: 100 * time.Millisecond, Multiplier: 3}

// Secret is where a password is stored. It never contains the password, so it may be
// logged and compared.
type Secret struct {
	// File is a path, Env the name of an environment variable; one of them is set.
	File, Env string
}

// maxPassword is the kernel's TCP_MD5SIG_MAXKEYLEN.
const maxPassword = 80

// Read returns the password: the first line of the file, or the variable's value. An
// empty one is an error. Errors don't contain it.
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

// CheckPassword returns why Secret.Read could not return a password from a file that
// contains it; nil if it could. The error doesn't contain the password.
func CheckPassword(password []byte) error {
	if n := len(password); n == 0 || n > maxPassword {
		return fmt.Errorf("password has %d bytes: want 1 to %d", n, maxPassword)
	}
	if bytes.ContainsAny(password, "\n\r\x00") {
		return errors.New("password contains a line end")
	}
	return nil
}
