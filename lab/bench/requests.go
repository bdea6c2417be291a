// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.io/fairlead/lab/netlab"
)

// warmUp is the time until all clients are connected, and wait for shaped links.
const warmUp = 1500 * time.Millisecond

// Answered are the requests of one measurement.
type Answered struct {
	// PerSecond is their rate within Elapsed.
	PerSecond float64
	Elapsed   time.Duration
	// Received and Sent are the client's bytes of a request, with Ethernet headers.
	Received, Sent float64
	// Failed is the number of requests without an answer of status 2xx or 3xx.
	Failed int
}

// Requests has a host send HTTP requests by wrk, and measures them for a time after a warm-up.
// Mark, if not nil, is called at the begin and at the end of that time. All answers must have
// the same size.
func Requests(ctx context.Context, lab *netlab.Lab, host string, length time.Duration, mark func() error, args ...string) (a Answered, err error) {
	var received, sent [4]uint64 // before, after the warm-up, after the length, at the end
	var at [4]time.Time
	sample := func(i int) (err error) {
		received[i], sent[i], err = Bytes(lab, host)
		at[i] = time.Now()
		return err
	}
	if err := sample(0); err != nil {
		return a, err
	}
	wrk, err := lab.Wrk(ctx, host, 2*length+time.Minute, args...) // it is interrupted below
	if err != nil {
		return a, err
	}
	for i, pause := range []time.Duration{warmUp, length} {
		err := netlab.Sleep(ctx, pause)
		if err == nil && mark != nil {
			err = mark()
		}
		if err := errors.Join(err, sample(i+1)); err != nil {
			return a, errors.Join(err, wrk.Kill())
		}
	}
	if err := wrk.Interrupt(); err != nil {
		return a, err
	}
	result, err := wrk.Wait()
	if err := errors.Join(err, sample(3)); err != nil {
		return a, err
	}
	if result.Requests == 0 {
		return a, fmt.Errorf("no request was answered: %s", result)
	}
	a.Received = float64(received[3]-received[0]) / float64(result.Requests)
	a.Sent = float64(sent[3]-sent[0]) / float64(result.Requests)
	a.Elapsed = at[2].Sub(at[1])
	a.PerSecond = float64(received[2]-received[1]) / a.Received / a.Elapsed.Seconds()
	a.Failed = result.Broken() + result.NotOK
	return a, nil
}

// Bytes returns how many bytes a host has received and sent at its first interface.
func Bytes(lab *netlab.Lab, host string) (received, sent uint64, err error) {
	err = lab.Do(host, func() error {
		link, err := netlink.LinkByName(lab.State().Host(host).Interfaces[0])
		if err == nil {
			received, sent = link.Attrs().Statistics.RxBytes, link.Attrs().Statistics.TxBytes
		}
		return err
	})
	return received, sent, err
}

// Shape limits the rate, in tc's units, at which a host's interface sends, but for packets that
// an XDP program sends. Its queue takes all requests on the way: clients wait, and no packet is
// dropped.
func Shape(ctx context.Context, lab *netlab.Lab, host, device, rate string) error {
	_, err := lab.Run(ctx, host, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "4k", "limit", "1m")
	if err != nil {
		return fmt.Errorf("link %s: %w", device, err)
	}
	return nil
}
