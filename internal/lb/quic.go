// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// Bounds of QUIC connection ids that name a server (draft-ietf-quic-load-
// balancers, sections 3 and 4). The last configuration id, 7, says that an id
// can't be routed.
const (
	MaxQUICConfig     = 6
	MaxServerIDLength = 15
	MinNonceLength    = 4
	// maxServerAndNonce leaves one of the 20 bytes of an id (RFC 9000, section
	// 17.2) for the first octet.
	maxServerAndNonce = 19
)

// QUIC says how the servers of a service write their ids into the connection
// ids that they hand out: behind one octet, of which the first three bits are
// the configuration, stand the server's id and a nonce, neither encrypted
// (draft-ietf-quic-load-balancers).
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

// UnmarshalText reads what String writes, in either case.
func (s *ServerID) UnmarshalText(text []byte) error {
	id, err := hex.DecodeString(string(text))
	if err != nil || len(id) == 0 || len(id) > MaxServerIDLength {
		return fmt.Errorf("bad server id %q: want two hexadecimal digits for each of 1 to %d bytes", text, MaxServerIDLength)
	}
	*s = ServerID(id)
	return nil
}

// checkQUIC finds what is wrong with affinity to QUIC connections.
func (s *Service) checkQUIC(f *findings) {
	wanted := s.Affinity == AffinityQUIC
	switch {
	case wanted && s.Protocol == TCP:
		f.add("affinity", errors.New("quic runs over udp, this service is tcp"))
	case wanted && s.QUIC == nil:
		f.add("quic", errors.New("missing: affinity quic needs to know the form of connection ids"))
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

// checkServerID leaves the length open where the service doesn't say which.
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
	if q.ConfigID < 0 || q.ConfigID > MaxQUICConfig {
		f.add(path+".configID", OutOfRange(q.ConfigID, 0, MaxQUICConfig))
	}
	if q.ServerIDLength < 1 || q.ServerIDLength > MaxServerIDLength {
		f.add(path+".serverIDLength", OutOfRange(q.ServerIDLength, 1, MaxServerIDLength))
		return
	}
	if most := maxServerAndNonce - q.ServerIDLength; q.NonceLength < MinNonceLength || q.NonceLength > most {
		f.add(path+".nonceLength", OutOfRange(q.NonceLength, MinNonceLength, most))
	}
}
