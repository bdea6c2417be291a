// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"fmt"
	"net"
	"time"

	"fairlead.io/fairlead/internal/bench"
	"fairlead.io/fairlead/internal/dataplane/xdp/generator"
	"fairlead.io/fairlead/internal/netlab"
)

// firstFrames is the number of frames of the first warm-up, which is to find out
// how many a longer measurement takes.
const firstFrames = 1 << 14

// warmUpStep is the longest part of a warm-up: a device gets slower meanwhile.
const warmUpStep = 500 * time.Millisecond

// rate is what one measurement found.
type rate struct {
	perSecond float64 // frames that reached the sink
	lost      float64 // share of the frames sent that didn't
}

// run sends one load over one wire.
type run struct {
	lab    *netlab.Lab
	wire   *wire
	sender *generator.Sender
	// perFrame is what a frame took when it was last measured, in nanoseconds.
	perFrame float64
}

func newRun(lab *netlab.Lab, w *wire, c conditions) (*run, error) {
	r := &run{lab: lab, wire: w}
	return r, lab.Do(testerHost, func() error {
		dev, err := net.InterfaceByName(w.testerEnd)
		if err != nil {
			return err
		}
		r.sender, err = generator.NewSender(dev.Index, c.load(w))
		return err
	})
}

// warmUp sends for about as long as d and keeps in mind how fast that was.
func (r *run) warmUp(ctx context.Context, d time.Duration) error {
	if _, err := r.send(firstFrames); err != nil {
		return err
	}
	for start, left := time.Now(), d; left > 0; left = d - time.Since(start) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := r.send(r.frames(min(left, warmUpStep))); err != nil {
			return err
		}
	}
	return nil
}

// measure sends for about as long as d and counts what arrives.
func (r *run) measure(d time.Duration) (rate, error) { return r.send(r.frames(d)) }

// frames is the number of frames that take about as long as d.
func (r *run) frames(d time.Duration) int {
	return max(firstFrames, int(float64(d.Nanoseconds())/r.perFrame))
}

func (r *run) send(frames int) (found rate, err error) {
	err = r.lab.Do(testerHost, func() error {
		if err := bench.ClaimProcessor(); err != nil {
			return err
		}
		sentBefore, receivedBefore, err := r.counts()
		if err != nil {
			return err
		}
		if r.perFrame, err = r.sender.Send(frames); err != nil {
			return err
		}
		sent, received, err := r.counts()
		if err != nil {
			return err
		}
		if received == receivedBefore {
			return fmt.Errorf("none of %d frames came through", sent-sentBefore)
		}
		share := float64(received-receivedBefore) / float64(sent-sentBefore)
		found = rate{perSecond: 1e9 / r.perFrame * share, lost: 1 - share}
		return nil
	})
	return found, err
}

// counts are the frames sent and received so far.
func (r *run) counts() (sent, received uint64, err error) {
	if sent, err = r.sender.Sent(); err != nil {
		return 0, 0, err
	}
	got, err := r.wire.sink.Received()
	return sent, got.Frames, err
}

func (r *run) close() error { return r.sender.Close() }
