// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/netlab/operator"
	"fairlead.io/fairlead/internal/observe"
)

// routes shows how the router knows where VIPs are, and who told it.
func (s stage) routes(ctx context.Context) error {
	s.say("\n== The balancers announce the VIPs by BGP; FRR puts them into the router's kernel")
	if err := s.showTable(); err != nil {
		return err
	}
	for _, h := range s.balancers() {
		if err := s.watched(ctx, h.Name); err != nil {
			return err
		}
	}
	s.say("   lb1 says of it (fairlead routes):\n")
	routes, err := s.announced(ctx, "lb1")
	if err != nil {
		return err
	}
	return s.indent(func(w io.Writer) error { return observe.WriteRoutes(w, routes, time.Now()) })
}

// indent writes what is told by others as a part of the story.
func (s stage) indent(write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		s.say("%s", strings.TrimRight("   "+line, " \n"))
	}
	return nil
}

// showTable shows the router's routes to the VIPs.
func (s stage) showTable() error {
	table, err := s.lab.Table("router")
	if err != nil {
		return err
	}
	defer table.Close()
	for _, r := range s.topology.Learned {
		via, err := table.Via(r.Prefix)
		if err != nil {
			return err
		}
		s.say("   router: %-18s via %s", r.Prefix, strings.Join(via, ", "))
	}
	return nil
}

// announced is what a balancer says of its routes.
func (s stage) announced(ctx context.Context, balancer string) (r observe.Routes, err error) {
	text, err := observe.Dial(s.lab.State().Host(balancer).Socket).Routes(ctx)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", balancer, err)
	}
	return r, nil
}

// routed waits until the router's routes lead to all balancers except some, and
// returns how long that took.
func (s stage) routed(ctx context.Context, except ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	for _, r := range s.topology.Learned {
		r.Via = slices.DeleteFunc(slices.Clone(r.Via), func(name string) bool { return slices.Contains(except, name) })
		if err := s.lab.AwaitRoute(ctx, r); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Round(time.Millisecond), nil
}

// watched waits until a balancer and the router watch each other.
func (s stage) watched(ctx context.Context, balancer string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return operator.AwaitSessions(ctx, []string{s.lab.State().Host(balancer).Socket}, true)
}
