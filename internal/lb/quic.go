// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// Bounds of QUIC connection IDs that contain a server ID (draft-ietf-quic-load-
// balancers, sections 3 and 4). The last configuration id, 7, marks an id
// that can't be routed.
const (
	MaxQUICConfig     = 6
	MaxServerIDLength = 15
	MinNonceLength    = 4
	// maxServerAndNonce leaves one of the 20 bytes of an id (RFC 9000, section
	// 17.2) for the first octet.
	maxServerAndNonce = 19
)

// QUIC is how the servers of a service encode their IDs in connection IDs: after one octet,
// whose first three bits are the configuration, follow the server's ID and a nonce, both
// unencrypted (draft-ietf-quic-load-balancers).
type QUIC struct {
	ConfigID int `json:"configID"`
	// ServerIDLength and NonceLength are in bytes, together at most 19.
	ServerIDLength int `json:"serverIDLength"`
	NonceLength    int `json:"nonceLength"`
}

// ServerID is the bytes that a server writes into its QUIC connection ids.
type ServerID string

// String returns two hexadecimal digits for each byte.
func (s ServerID) String() string { return hex.EncodeToString([]byte(s)) }

// MarshalText writes the id as String does.
func (s ServerID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses String's output, in either case.
func (s *ServerID) UnmarshalText(text []byte) error {
	id, err := hex.DecodeString(string(text))
	if err != nil || len(id) == 0 || len(id) > MaxServerIDLength {
		return fmt.Errorf("bad server id %q: want two hexadecimal digits for each of 1 to %d bytes", text, MaxServerIDLength)
	}
	*s = ServerID(id)
	return nil
}

// checkQUIC checks the fields for AffinityQUIC.
func (s *Service) checkQUIC(f *findings) {
	wanted := s.Affinity == AffinityQUIC
	switch {
	case wanted && s.Protocol == TCP:
		f.add("affinity", errors.New("quic runs over udp, this service is tcp"))
	case wanted && s.QUIC == nil:
		f.add("quic", errors.New("missing: affinity quic needs the format of connection IDs"))
	case !wanted && s.QUIC != nil:
		f.add("quic", fmt.Errorf("only with affinity quic, this service has %s", s.Affinity))
	}
	if s.QUIC != nil {
		s.QUIC.check(f, "quic")
	}
	first := make(map[ServerID]int)
	for i, b := range s.Backends {
		if b.ServerID == "" {
			continue
		}
		err := s.checkServerID(b.ServerID)
		if j, taken := first[b.ServerID]; taken && err == nil {
			err = fmt.Errorf("%s is also that of backends[%d]", b.ServerID, j)
		} else if !taken {
			first[b.ServerID] = i
		}
		f.add(fmt.Sprintf("backends[%d].serverID", i), err)
	}
}

// checkServerID doesn't check the length if the service doesn't define it.
func (s *Service) checkServerID(id ServerID) error {
	switch {
	case s.Affinity != AffinityQUIC:
		return fmt.Errorf("only with affinity quic, this service has %s", s.Affinity)
	case s.QUIC != nil && len(id) != s.QUIC.ServerIDLength:
		return fmt.Errorf("%s has %d bytes: want the service's serverIDLength of %d", id, len(id), s.QUIC.ServerIDLength)
	}
	return nil
}

func (q *QUIC) check(f *findings, path string) {
	f.add(path+".configID", checkRange(q.ConfigID, 0, MaxQUICConfig))
	if err := checkRange(q.ServerIDLength, 1, MaxServerIDLength); err != nil {
		f.add(path+".serverIDLength", err)
		return
	}
	f.add(path+".nonceLength", checkRange(q.NonceLength, MinNonceLength, maxServerAndNonce-q.ServerIDLength))
}
