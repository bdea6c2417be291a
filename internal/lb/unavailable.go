// SPDX-License-Identifier: Apache-2.0

package lb

// Unavailable says what becomes of a client's packet while its service has no
// usable backend.
type Unavailable uint8

// What there is to choose from. The zero value is the default.
const (
	// Drop leaves the client waiting: what it sends again arrives when a backend
	// is back.
	Drop Unavailable = iota
	// Reject tells the client at once: TCP by a reset (RFC 9293 §3.10.7.1), UDP by
	// ICMP "port unreachable", and a ping of an address that has nothing else to
	// offer by "host unreachable".
	Reject
)

var unavailableWords = words{Drop: "drop", Reject: "reject"}

// String returns "drop" or "reject".
func (u Unavailable) String() string { return unavailableWords.text(uint8(u)) }

// MarshalText writes the word as String does.
func (u Unavailable) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads what MarshalText writes; any other text is an error.
func (u *Unavailable) UnmarshalText(text []byte) error {
	v, err := unavailableWords.parse("policy", string(text))
	*u = Unavailable(v)
	return err
}
