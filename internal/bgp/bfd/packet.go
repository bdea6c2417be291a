// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/bgp"
)

// state is a session's state as packets have it (RFC 5880 §4.1).
type state uint8

const (
	adminDown state = iota
	down
	initial
	up
)

// word is the state in the vocabulary of BGP peers.
func (s state) word() bgp.BFDState {
	return [...]bgp.BFDState{bgp.BFDAdminDown, bgp.BFDDown, bgp.BFDInit, bgp.BFDUp}[s]
}

// packet is a control packet (RFC 5880 §4.1).
type packet struct {
	diagnostic Diagnostic
	state      state
	// poll and final are the P and F bits; independent is the C bit: the peer's
	// control plane may die without its forwarding plane; demand is the D bit.
	poll, final, independent, demand bool
	// authenticated says that a section of authentication follows. Nothing here
	// reads or writes one.
	authenticated bool
	multiplier    uint8
	// my and your are discriminators; your is 0 if the sender doesn't know it.
	my, your uint32
	// Intervals are whole microseconds, up to 32 bits of them.
	desiredMinTx, requiredMinRx, requiredMinEchoRx time.Duration
}

// Lengths in bytes: of the mandatory section, and with the smallest section of
// authentication (RFC 5880 §6.8.6).
const (
	packetLength        = 24
	authenticatedLength = 26
)

const version = 1

// Bits of the second byte.
const (
	flagMultipoint = 1 << iota
	flagDemand
	flagAuthentication
	flagIndependent
	flagFinal
	flagPoll
)

// Reasons to discard a packet, in the order of RFC 5880 §6.8.6.
var (
	errShort         = errors.New("packet is shorter than its header")
	errMultiplier    = errors.New("packet with detection multiplier 0")
	errMultipoint    = errors.New("packet of a multipoint session")
	errMyZero        = errors.New("packet without a discriminator")
	errYourZero      = errors.New("packet of a session that is not down, without our discriminator")
	errUnknown       = errors.New("packet of a session that does not exist")
	errListening     = errors.New("packet of a session that has not begun here")
	errAuthenticated = errors.New("packet with authentication, which is not configured")
)

// parse reads a datagram and discards what RFC 5880 §6.8.6 wants discarded before
// a session is looked up.
func parse(b []byte) (packet, error) {
	if len(b) < packetLength {
		return packet{}, errShort
	}
	if v := b[0] >> 5; v != version {
		return packet{}, fmt.Errorf("packet of version %d", v)
	}
	flags, length := b[1]&0x3f, int(b[3])
	authenticated := flags&flagAuthentication != 0
	switch {
	case length < packetLength || authenticated && length < authenticatedLength:
		return packet{}, fmt.Errorf("packet with length %d", length)
	case length > len(b):
		return packet{}, errShort
	case b[2] == 0:
		return packet{}, errMultiplier
	case flags&flagMultipoint != 0:
		return packet{}, errMultipoint
	}
	p := packet{
		diagnostic: Diagnostic(b[0] & 0x1f), state: state(b[1] >> 6), authenticated: authenticated,
		poll: flags&flagPoll != 0, final: flags&flagFinal != 0,
		independent: flags&flagIndependent != 0, demand: flags&flagDemand != 0,
		multiplier: b[2], my: binary.BigEndian.Uint32(b[4:]), your: binary.BigEndian.Uint32(b[8:]),
		desiredMinTx: microseconds(b[12:]), requiredMinRx: microseconds(b[16:]), requiredMinEchoRx: microseconds(b[20:]),
	}
	switch {
	case p.my == 0:
		return packet{}, errMyZero
	case p.your == 0 && p.state > down:
		return packet{}, errYourZero
	}
	return p, nil
}

// bytes is the packet as it is sent.
func (p *packet) bytes() [packetLength]byte {
	var b [packetLength]byte
	b[0] = version<<5 | byte(p.diagnostic)&0x1f
	b[1] = byte(p.state)<<6 | p.flags()
	b[2], b[3] = p.multiplier, packetLength
	for i, word := range []uint32{
		p.my, p.your,
		uint32(p.desiredMinTx.Microseconds()), uint32(p.requiredMinRx.Microseconds()), uint32(p.requiredMinEchoRx.Microseconds()),
	} {
		binary.BigEndian.PutUint32(b[4+4*i:], word)
	}
	return b
}

func (p *packet) flags() byte {
	var flags byte
	for _, f := range []struct {
		set bool
		bit byte
	}{{p.poll, flagPoll}, {p.final, flagFinal}, {p.independent, flagIndependent}, {p.demand, flagDemand}} {
		if f.set {
			flags |= f.bit
		}
	}
	return flags
}

func microseconds(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Microsecond
}
