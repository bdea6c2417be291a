// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
)

const (
	// targets is the number of load balancers whose members are created, one after the other. A port of Neutron may
	// have so many address pairs.
	targets = 10
	// firstPort is the port of the first one. A server knows load balancers by it.
	firstPort = 7000
	// sendPause is the time between two connections.
	sendPause     = time.Millisecond
	changeTimeout = time.Minute
)

// target is a load balancer whose second member is created. The first one is at another server.
type target struct {
	balancer
	port     int
	arrivals chan time.Time // of the first connection after it was empty
	member   string
}

// creations are the milliseconds of creations.
type creations struct {
	// Whole is from before the request for a load balancer with a listener, a pool and a member until Octavia shows it
	// as active and a client's connection has been accepted.
	Whole bench.Runs
	// Total is from before the request to the first connection at the member. It is the sum of Octavia, until the driver
	// writes the load balancer, and Fairlead. Answered is until the answer.
	Total, Octavia, Fairlead, Answered bench.Runs
}

// measureMembers creates members.
func (t *testbed) measureMembers(ctx context.Context) (s seen, err error) {
	defer func() { err = t.withLogs(err) }()
	var all []*target
	found := &s.Creations
	for n := range min(targets, t.cfg.Members) {
		began := time.Now()
		one, err := t.newTarget(ctx, firstPort+n)
		if err != nil {
			return s, err
		}
		found.Whole = append(found.Whole, bench.Milliseconds(time.Since(began)))
		all = append(all, one)
	}
	for len(found.Total) < t.cfg.Members {
		for _, one := range all[:min(len(all), t.cfg.Members-len(found.Total))] {
			if err := t.createMember(ctx, one, found); err != nil {
				return s, fmt.Errorf("creation %d: %w", len(found.Total), err)
			}
		}
		for _, one := range all {
			if err := t.deleteMember(ctx, one); err != nil {
				return s, err
			}
		}
	}
	for _, one := range all {
		if err := errors.Join(t.awaitActive(ctx, one.ID), t.remove(ctx, "loadbalancers/"+one.ID+"?cascade=true")); err != nil {
			return s, err
		}
	}
	return s, t.awaitNone(ctx, "name=bench7000")
}

// newTarget makes a load balancer with a member at the second server, has both servers accept connections, and opens
// one. New connections may have another member at once, while datagrams have the former one for the second in which
// flows are learned.
func (t *testbed) newTarget(ctx context.Context, port int) (*target, error) {
	made, err := t.create(ctx, "TCP", port, fields{"members": []fields{t.member(1, port)}})
	if err != nil {
		return nil, err
	}
	one := &target{balancer: made, port: port, arrivals: make(chan time.Time, 1)}
	vip, err := netip.ParseAddr(made.VIP)
	if err != nil {
		return nil, err
	}
	arrive := func() {
		select {
		case one.arrivals <- time.Now():
		default:
		}
	}
	if err := errors.Join(t.servers.open(0, port, arrive), t.servers.open(1, port, func() {})); err != nil {
		return nil, err
	}
	if err := t.awaitActive(ctx, made.ID); err != nil {
		return nil, err
	}
	hops := netlab.LearnedRoute{Host: "router", Prefix: netip.PrefixFrom(vip, vip.BitLen()), Via: []string{"10.0.5.11"}}
	if err := t.AwaitRoute(ctx, hops); err != nil {
		return nil, err
	}
	return one, t.Do("client", one.connect)
}

// createMember creates the member, and waits for its first connection.
func (t *testbed) createMember(ctx context.Context, one *target, found *creations) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := t.awaitActive(ctx, one.ID); err != nil {
		return err
	}
	one.drain()
	sending, stop := context.WithCancel(ctx)
	sent := make(chan error, 1)
	go func() { sent <- t.send(sending, one) }()
	var made struct{ Member struct{ ID string } }
	began := time.Now()
	err := t.client.Create(ctx, "pools/"+one.Pools[0].ID+"/members", fields{"member": t.member(0, one.port)}, &made)
	answered := time.Now()
	var arrived time.Time
	if err == nil {
		select {
		case arrived = <-one.arrivals:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	stop()
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	one.member = made.Member.ID
	written := t.proxy.write(one.ID)
	if written.Before(began) {
		return fmt.Errorf("load balancer %s: the driver hasn't written", one.ID)
	}
	found.Total = append(found.Total, bench.Milliseconds(arrived.Sub(began)))
	found.Octavia = append(found.Octavia, bench.Milliseconds(written.Sub(began)))
	found.Fairlead = append(found.Fairlead, bench.Milliseconds(arrived.Sub(written)))
	found.Answered = append(found.Answered, bench.Milliseconds(answered.Sub(began)))
	return nil
}

// drain forgets an arrival.
func (one *target) drain() {
	select {
	case <-one.arrivals:
	default:
	}
}

// connect opens a connection from the calling thread's namespace.
func (one *target) connect() error {
	to := netip.AddrPortFrom(netip.MustParseAddr(one.VIP), uint16(one.port)).String()
	conn, err := net.DialTimeout("tcp4", to, changeTimeout)
	if err != nil {
		return err
	}
	return errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
}

// send opens connections from the client until ctx ends.
func (t *testbed) send(ctx context.Context, one *target) error {
	return t.Do("client", func() error {
		for ticker := time.NewTicker(sendPause); ; {
			if err := one.connect(); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				ticker.Stop()
				return nil
			case <-ticker.C:
			}
		}
	})
}

// deleteMember deletes the member, if there is one.
func (t *testbed) deleteMember(ctx context.Context, one *target) error {
	if one.member == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := t.awaitActive(ctx, one.ID); err != nil {
		return err
	}
	err := t.remove(ctx, "pools/"+one.Pools[0].ID+"/members/"+one.member)
	one.member = ""
	return err
}

// add adds the results and the verdict.
func (c *creations) add(r *bench.Report) {
	r.AddDistribution("create_whole_ms", "ms", c.Whole, nil)
	r.AddDistribution("create_to_packet_ms", "ms", c.Total, nil)
	r.AddDistribution("create_to_write_ms", "ms", c.Octavia, nil)
	r.AddDistribution("write_to_packet_ms", "ms", c.Fairlead, nil)
	r.AddDistribution("create_answer_ms", "ms", c.Answered, nil)
	r.Judge("write_to_packet_ms: 99 of 100 new members get a packet within so many milliseconds after the driver's write",
		bench.Documented, bench.AtMost(packetTarget), c.Fairlead.Percentile(99))
}
