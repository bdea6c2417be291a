// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// webURL is what is asked for while balancers come and go.
const webURL = "http://10.1.1.1:80/"

// cutOff takes a balancer off the network while requests run on lasting
// connections, and puts it back.
func (s stage) cutOff(ctx context.Context) error {
	const lost, connections = "lb2", 64
	s.say("\n== wrk keeps %d connections busy for 6 s; meanwhile the wire of %s is cut, and mended\n"+
		"   BFD: the router and each balancer hear of each other every 100 ms, dead after 3 silences", connections, lost)
	if err := s.watched(ctx, lost); err != nil {
		return err
	}
	load, err := s.load(ctx, 6*time.Second, "-c", fmt.Sprint(connections), webURL)
	if err != nil {
		return err
	}
	if err := s.cutAndMend(ctx, lost); err != nil {
		return errors.Join(err, load.kill())
	}
	result, err := load.wait()
	if err != nil {
		return err
	}
	s.say("   %s", result)
	s.say("   connections broken: %d of %d. Those that went through %s go on through the others, which know the same rings.",
		result.broken(), connections, lost)
	return nil
}

func (s stage) cutAndMend(ctx context.Context, balancer string) error {
	if err := pause(ctx, time.Second); err != nil { // so that every connection has been used
		return err
	}
	if err := s.lab.Cut(balancer); err != nil {
		return err
	}
	took, err := s.routed(ctx, balancer)
	if err != nil {
		return err
	}
	s.say("   %s is out of the router's routes %s after its wire was cut", balancer, took)
	if err := s.lab.Mend(balancer); err != nil {
		return err
	}
	if took, err = s.routed(ctx); err != nil {
		return err
	}
	s.say("   %s is back %s after it was mended", balancer, took)
	return nil
}

// leave ends a balancer's agent in the ordinary way while requests run on
// connections of their own, and starts it again.
func (s stage) leave(ctx context.Context) error {
	const leaving = "lb3"
	s.say("\n== wrk asks for 4 s, a new connection for each request; meanwhile %s leaves by SIGTERM, and comes again", leaving)
	load, err := s.load(ctx, 4*time.Second, "-H", "Connection: close", webURL)
	if err != nil {
		return err
	}
	if err := s.leaveAndReturn(ctx, leaving); err != nil {
		return errors.Join(err, load.kill())
	}
	result, err := load.wait()
	if err != nil {
		return err
	}
	s.say("   %s", result)
	s.say("   requests that failed: %d. Its routes went before it did, and came after it was ready.", result.broken())
	return nil
}

func (s stage) leaveAndReturn(ctx context.Context, balancer string) error {
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	began := time.Now()
	if err := s.lab.Stop(ctx, balancer, "agent"); err != nil {
		return err
	}
	s.say("   %s has told the router, seen its packets stay away, and ended after %s", balancer, time.Since(began).Round(time.Millisecond))
	if _, err := s.routed(ctx, balancer); err != nil {
		return err
	}
	if err := s.lab.Restart(ctx, balancer, "agent"); err != nil {
		return err
	}
	took, err := s.routed(ctx)
	if err != nil {
		return err
	}
	s.say("   %s is in the routes again %s after it was started", balancer, took)
	return nil
}
