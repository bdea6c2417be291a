// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"fmt"
	"net"
	"time"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/wire"
)

// firstFrames is the number of frames of the first warm-up, which measures how many
// frames a duration takes.
const firstFrames = 1 << 14

// longestStep is the longest time without a look at the context.
const longestStep = 500 * time.Millisecond

// rate is the findings of a round.
type rate struct {
	PerSecond float64 // frames that reached the sink
	Lost      float64 // share of the frames that didn't
}

// run sends one load to the device.
type run struct {
	*testbed
	sender *wire.Sender
	// perFrame is the time of a frame in the last measurement, in nanoseconds.
	perFrame float64
}

// open makes the sender.
func (r *run) open(load wire.Load) error {
	return bench.OnInterface(r.lab, testerHost, deviceInterface, func(dev *net.Interface) (err error) {
		r.sender, err = wire.NewSender(dev.Index, load)
		r.perFrame = float64(longestStep)
		return err
	})
}

// measure sends for about d and returns the means of its steps.
func (r *run) measure(ctx context.Context, d time.Duration) (mean rate, err error) {
	steps := max(1, int(d/longestStep))
	for range steps {
		if err := ctx.Err(); err != nil {
			return rate{}, err
		}
		one, err := r.send(d / time.Duration(steps))
		if err != nil {
			return rate{}, err
		}
		mean.PerSecond += one.PerSecond / float64(steps)
		mean.Lost += one.Lost / float64(steps)
	}
	return mean, nil
}

// send sends for about d and counts the frames that arrive.
func (r *run) send(d time.Duration) (found rate, err error) {
	err = r.lab.Do(testerHost, func() error {
		if err := bench.ClaimProcessor(); err != nil {
			return err
		}
		before, err := r.received(0, 0)
		if err != nil {
			return err
		}
		sent, err := r.sender.Sent()
		if err != nil {
			return err
		}
		if r.perFrame, err = r.sender.Send(max(firstFrames, int(float64(d)/r.perFrame))); err != nil {
			return err
		}
		total, err := r.sender.Sent()
		if err != nil {
			return err
		}
		sent = total - sent
		received, err := r.received(before, sent)
		if err != nil {
			return err
		}
		received -= before
		if received == 0 {
			return fmt.Errorf("none of %d frames came through", sent)
		}
		share := float64(received) / float64(sent)
		found = rate{PerSecond: 1e9 / r.perFrame * share, Lost: 1 - share}
		return nil
	})
	return found, err
}

// received returns how many frames have arrived, when those that were sent after the first ones
// have, or when no more do (RFC 2544, section 24): a kernel under load defers packets to a thread of
// its own, which may not have run yet.
func (r *run) received(before, sent uint64) (uint64, error) {
	const longest, step = 2 * time.Second, 50 * time.Millisecond
	last := before
	for waited := time.Duration(0); ; waited += step {
		now, err := r.sink.Received()
		if err != nil || now.Frames-before >= sent || waited >= longest || now.Frames > before && now.Frames == last {
			return now.Frames, err
		}
		last = now.Frames
		time.Sleep(step)
	}
}
