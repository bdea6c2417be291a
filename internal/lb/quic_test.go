// SPDX-License-Identifier: Apache-2.0

package lb_test

import (
	"encoding/json"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
)

// validQUIC returns a valid QUIC service.
func validQUIC() *lb.Service {
	s := valid()
	s.Protocol, s.Affinity = lb.UDP, lb.AffinityQUIC
	s.QUIC = &lb.QUIC{ConfigID: 1, ServerIDLength: 2, NonceLength: 8}
	s.Backends[0].ServerID, s.Backends[1].ServerID = "\x00\x01", "\x00\x02"
	return s
}

func TestCheckQUIC(t *testing.T) {
	testCheck(t, validQUIC, map[string]checkTest{
		"valid":        {func(*lb.Service) {}, nil},
		"no server id": {func(s *lb.Service) { s.Backends[0].ServerID = "" }, nil},
		"longest":      {func(s *lb.Service) { s.QUIC.NonceLength = 17 }, nil},
		"tcp":          {func(s *lb.Service) { s.Protocol = lb.TCP }, []string{"affinity: quic runs over udp, this service is tcp"}},
		"no form":      {func(s *lb.Service) { s.QUIC = nil }, []string{"quic: missing: affinity quic needs the format of connection IDs"}},
		"unroutable":   {func(s *lb.Service) { s.QUIC.ConfigID = 7 }, []string{"quic.configID: 7 is out of range: want 0 to 6"}},
		"no length": {func(s *lb.Service) { s.QUIC.ServerIDLength = 0 }, []string{
			"quic.serverIDLength: 0 is out of range: want 1 to 15",
			"backends[0].serverID: 0001 has 2 bytes: want the service's serverIDLength of 0",
			"backends[1].serverID: 0002 has 2 bytes: want the service's serverIDLength of 0"}},
		"short nonce": {func(s *lb.Service) { s.QUIC.NonceLength = 3 }, []string{"quic.nonceLength: 3 is out of range: want 4 to 17"}},
		"long nonce":  {func(s *lb.Service) { s.QUIC.NonceLength = 18 }, []string{"quic.nonceLength: 18 is out of range: want 4 to 17"}},
		"twice":       {func(s *lb.Service) { s.Backends[1].ServerID = "\x00\x01" }, []string{"backends[1].serverID: 0001 is also that of backends[0]"}},
		"short":       {func(s *lb.Service) { s.Backends[1].ServerID = "\x01" }, []string{"backends[1].serverID: 01 has 1 bytes: want the service's serverIDLength of 2"}},
		"other affinity": {func(s *lb.Service) { s.Affinity = lb.AffinityClient }, []string{
			"quic: only with affinity quic, this service has client",
			"backends[0].serverID: only with affinity quic, this service has client",
			"backends[1].serverID: only with affinity quic, this service has client"}},
	})
}

func TestQUICText(t *testing.T) {
	text, err := json.Marshal(validQUIC())
	if err != nil || !strings.Contains(string(text), `"serverID":"0001"`) {
		t.Errorf("%v: %s", err, text)
	}
	var again lb.Service
	if err := json.Unmarshal(text, &again); err != nil || !again.Equal(validQUIC()) {
		t.Errorf("%v: %+v", err, again)
	}
}

// FuzzServerID checks that a parsed ID formats as it was written.
func FuzzServerID(f *testing.F) {
	for _, seed := range []string{"", "0", "00", "c0FFee", "zz", "000102030405060708090a0b0c0d0e", "000102030405060708090a0b0c0d0e0f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var id lb.ServerID
		if id.UnmarshalText([]byte(text)) != nil {
			if id != "" {
				t.Errorf("%q was refused, but left %q", text, id)
			}
			return
		}
		if len(id) < 1 || len(id) > lb.MaxServerIDLength || id.String() != strings.ToLower(text) {
			t.Errorf("%q was read as %s", text, id)
		}
	})
}
