// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

const (
	// refusalPause is how long notes of refusals are gathered: of many of one
	// backend the first says it all.
	refusalPause = 20 * time.Millisecond
	// maxRefusals is how many wait for the receiver; more are dropped.
	maxRefusals = 64
)

// Refused delivers refused connections of services with NAT whose health check is
// passive. It never waits for the receiver, and says the same seldom twice in a
// row. The channel is never closed.
func (p *Plane) Refused() <-chan dataplane.Refusal { return p.refused }

// readRefusals hands on what packets note, until the reader is closed.
func (p *Plane) readRefusals(notes *ringbuf.Reader) {
	for {
		batch := map[balancerNatRefusal]struct{}{}
		err := gatherRefusals(notes, batch)
		if errors.Is(err, ringbuf.ErrClosed) {
			return
		}
		if err != nil {
			p.config.Log.Warn("refused connections are not noticed", "error", err)
			return
		}
		p.tellRefusals(batch)
	}
}

// gatherRefusals waits for the first note, and takes those that come soon after.
func gatherRefusals(notes *ringbuf.Reader, batch map[balancerNatRefusal]struct{}) error {
	notes.SetDeadline(time.Time{})
	for {
		record, err := notes.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		var refusal balancerNatRefusal
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &refusal); err != nil {
			return err
		}
		if len(batch) == 0 {
			notes.SetDeadline(time.Now().Add(refusalPause))
		}
		batch[refusal] = struct{}{}
	}
}

// tellRefusals names the backends. Those that have left since are nobody's.
func (p *Plane) tellRefusals(batch map[balancerNatRefusal]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for vip, s := range p.services {
		for refusal := range batch {
			if refusal.Service != s.number.base {
				continue
			}
			if backend := s.named(refusal.Backend); backend.IsValid() {
				select {
				case p.refused <- dataplane.Refusal{VIP: vip, Backend: backend}:
				default:
				}
			}
		}
	}
}

// named is the backend that a record names, usable or not; the zero ID if it is
// gone.
func (s *service) named(record uint32) lb.BackendID {
	if !namesSlot(s.now.slots, record) {
		return lb.BackendID{}
	}
	return s.now.slots[record&0xffff].id()
}
