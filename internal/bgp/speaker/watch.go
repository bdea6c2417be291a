// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/bfd"
)

// watch has BFD watch the peers, and begin with those that it hears of too late.
func (s *Speaker) watch() error {
	err := s.watcher.Set(s.watchlist())
	for addr, n := range s.neighbours {
		if n.State().State == bgp.Established {
			s.watcher.Begin(addr)
		}
	}
	return err
}

// watchlist are the peers that BFD watches.
func (s *Speaker) watchlist() (list []bfd.Peer) {
	for _, n := range s.neighbours {
		if peer := n.Peer(); peer.BFD != nil {
			list = append(list, bfd.Of(&peer))
		}
	}
	return list
}

// watched hears of changes of BFD sessions.
func (s *Speaker) watched(event bfd.Event) {
	s.mu.Lock()
	n := s.neighbours[event.Peer]
	s.mu.Unlock()
	if n == nil {
		return
	}
	if event.New == bgp.BFDUp {
		s.log.Info("bfd session up", "peer", event.Peer)
	} else if event.Old == bgp.BFDUp {
		s.log.Warn("bfd session down", "peer", event.Peer, "reason", event.Diagnostic)
	}
	n.Watched(event)
}
