// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

const (
	// refusalPause is how long refusals are gathered: many of one backend count as
	// one.
	refusalPause = 20 * time.Millisecond
	// maxRefusals is how many wait for the receiver; more are dropped.
	maxRefusals = 64
)

// passiveCheck makes a backend's refusals count as failed health checks.
type passiveCheck struct {
	flagged
	on bool
}

func (c *passiveCheck) describe(svc *lb.Service) { c.on = svc.Health != nil && svc.Health.Passive }

func (c *passiveCheck) flags() table.BalancerViewFlag {
	return when(c.on, table.BalancerViewFlagVIEW_PASSIVE)
}

// Refused delivers refused connections of services with NAT whose health check is
// passive. It never waits for the receiver, and seldom delivers the same one twice
// in a row. The channel is never closed.
func (p *Plane) Refused() <-chan dataplane.Refusal { return p.refusals.out }

// refusals reads the refused connections that packets report.
type refusals struct {
	reader *ringbuf.Reader
	out    chan dataplane.Refusal
	log    *slog.Logger
}

func newRefusals(t *table.Tables, log *slog.Logger) (*refusals, error) {
	reader, err := ringbuf.NewReader(t.Maps.NatRefusals)
	if err != nil {
		return nil, fmt.Errorf("table nat_refusals: %w", err)
	}
	return &refusals{reader: reader, out: make(chan dataplane.Refusal, maxRefusals), log: log}, nil
}

// run delivers refusals under the names that name gives them, until the reader is
// closed.
func (r *refusals) run(name func(map[table.BalancerNatRefusal]struct{}) []dataplane.Refusal) {
	for {
		batch := map[table.BalancerNatRefusal]struct{}{}
		err := gatherRefusals(r.reader, batch)
		if errors.Is(err, ringbuf.ErrClosed) {
			return
		}
		if err != nil {
			r.log.Warn("refused connections are not reported", "error", err)
			return
		}
		for _, refusal := range name(batch) {
			select {
			case r.out <- refusal:
			default:
			}
		}
	}
}

// gatherRefusals waits for the first refusal, and takes those that follow soon.
func gatherRefusals(reader *ringbuf.Reader, batch map[table.BalancerNatRefusal]struct{}) error {
	reader.SetDeadline(time.Time{})
	for {
		record, err := reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		var refusal table.BalancerNatRefusal
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &refusal); err != nil {
			return err
		}
		if len(batch) == 0 {
			reader.SetDeadline(time.Now().Add(refusalPause))
		}
		batch[refusal] = struct{}{}
	}
}

// nameRefusals names the backends; those that have left since are omitted.
func (c *catalog) nameRefusals(batch map[table.BalancerNatRefusal]struct{}) []dataplane.Refusal {
	owners, err := c.owners(context.Background())
	if err != nil {
		return nil
	}
	var refusals []dataplane.Refusal
	for refusal := range batch {
		if o := owners[refusal.Service]; o != nil {
			if one := named(o.now.slots, refusal.Backend); one != nil {
				refusals = append(refusals, dataplane.Refusal{VIP: o.vip, Backend: one.id()})
			}
		}
	}
	return refusals
}
