// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
)

// A peer whose password can't be stored is left out: its session would have none.
func TestPasswordNotStored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	peers, err := passwords{dir}.store([]Peer{
		{Name: "open", Peer: bgp.Peer{ASN: 65001}},
		{Name: "closed", Peer: bgp.Peer{ASN: 65002}, Key: []byte("secret")},
	})
	if len(peers) != 1 || peers[0].ASN != 65001 {
		t.Errorf("peers %+v, want the one without a password", peers)
	}
	if err == nil || !strings.Contains(err.Error(), "BGPPeer closed") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
