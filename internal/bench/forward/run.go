// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/dataplane/xdp/generator"
	"fairlead.io/fairlead/internal/netlab"
)

// chunk is the number of frames that are sent between two looks at the clock.
const chunk = 1 << 15

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

// measure sends for a while, at least one chunk, and counts what arrives.
func (r *run) measure(d time.Duration) (found rate, err error) {
	err = r.lab.Do(testerHost, func() error {
		if err := pin(); err != nil {
			return err
		}
		sent, received, err := r.counts()
		if err != nil {
			return err
		}
		start := time.Now()
		for time.Since(start) < d {
			if err := r.sender.Send(chunk); err != nil {
				return err
			}
		}
		elapsed := time.Since(start)
		sentAfter, receivedAfter, err := r.counts()
		if err != nil {
			return err
		}
		if receivedAfter == received {
			time.Sleep(8 * time.Second)
			return fmt.Errorf("none of %d frames came through", sentAfter-sent)
		}
		arrived := float64(receivedAfter - received)
		found = rate{perSecond: arrived / elapsed.Seconds(), lost: 1 - arrived/float64(sentAfter-sent)}
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

// pin keeps the calling thread on the last processor that it may use; the
// first one has the machine's other work. The receivers' soft interrupts run
// where the sender does.
func pin() error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("processor affinity: %w", err)
	}
	last := 0
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			last = cpu
		}
	}
	var one unix.CPUSet
	one.Set(last)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("processor affinity: %w", err)
	}
	return nil
}

func (r *run) close() error { return r.sender.Close() }
