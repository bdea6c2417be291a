// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

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
	// senders are one on each processor, and perFrame their times of a frame in the last
	// measurement, in nanoseconds.
	senders  []*wire.Sender
	perFrame []float64
}

// open makes a sender for each load.
func (r *run) open(loads ...wire.Load) error {
	r.perFrame = make([]float64, len(loads))
	return bench.OnInterface(r.lab, testerHost, deviceInterface, func(dev *net.Interface) error {
		for nth, load := range loads {
			sender, err := wire.NewSender(dev.Index, load)
			if err != nil {
				return err
			}
			r.senders, r.perFrame[nth] = append(r.senders, sender), float64(longestStep)
		}
		return nil
	})
}

// close frees the senders.
func (r *run) close() error {
	var errs []error
	for _, s := range r.senders {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
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

// send sends for about d, on all processors at once, and counts the frames that arrive.
func (r *run) send(d time.Duration) (found rate, err error) {
	sentBefore, err := r.sent()
	if err != nil {
		return rate{}, err
	}
	before, err := r.received(0, 0)
	if err != nil {
		return rate{}, err
	}
	var processors errgroup.Group
	for nth, sender := range r.senders {
		frames := max(firstFrames, int(float64(d)/r.perFrame[nth]))
		processors.Go(func() error {
			return r.lab.Do(testerHost, func() error {
				err := bench.ClaimProcessor(nth)
				if err == nil {
					r.perFrame[nth], err = sender.Send(frames)
				}
				return err
			})
		})
	}
	if err := processors.Wait(); err != nil {
		return rate{}, err
	}
	sent, err := r.sent()
	if err != nil {
		return rate{}, err
	}
	sent -= sentBefore
	received, err := r.received(before, sent)
	if err != nil {
		return rate{}, err
	}
	if received == before {
		return rate{}, fmt.Errorf("none of %d frames came through", sent)
	}
	share := float64(received-before) / float64(sent)
	for _, perFrame := range r.perFrame {
		found.PerSecond += 1e9 / perFrame * share
	}
	found.Lost = 1 - share
	return found, nil
}

// sent is the number of frames that all senders have sent.
func (r *run) sent() (sum uint64, err error) {
	for _, s := range r.senders {
		n, err := s.Sent()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
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
