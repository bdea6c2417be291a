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

// creations are the milliseconds of the creations of members.
type creations struct {
	// total is from before the request to the first connection at the member. It is the sum of octavia, until the driver
	// writes the load balancer, and fairlead. answered is until the answer.
	total, octavia, fairlead, answered bench.Runs
}

// measureMembers creates members.
func (t *testbed) measureMembers(ctx context.Context) error {
	t.cfg.Log("%d creations of members", t.cfg.Members)
	var all []*target
	for n := range min(targets, t.cfg.Members) {
		one, err := t.newTarget(ctx, firstPort+n)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	var found creations
	for len(found.total) < t.cfg.Members {
		for _, one := range all[:min(len(all), t.cfg.Members-len(found.total))] {
			if err := t.createMember(ctx, one, &found); err != nil {
				return fmt.Errorf("creation %d: %w", len(found.total), err)
			}
		}
		for _, one := range all {
			if err := t.deleteMember(ctx, one); err != nil {
				return err
			}
		}
	}
	found.add(t.report)
	for _, one := range all {
		if err := errors.Join(t.awaitActive(ctx, one.ID), t.remove(ctx, "loadbalancers/"+one.ID+"?cascade=true")); err != nil {
			return err
		}
	}
	return t.awaitNone(ctx, "name=bench7000")
}

// newTarget makes a load balancer with a member at the second server, and has both servers accept connections. New
// ones may have another member at once, while datagrams have the former one for the second in which flows are learned.
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
	for server := range 2 {
		if err := t.accept(server, one); err != nil {
			return nil, err
		}
	}
	if err := t.awaitActive(ctx, made.ID); err != nil {
		return nil, err
	}
	hops := netlab.LearnedRoute{Host: "router", Prefix: netip.PrefixFrom(vip, vip.BitLen()), Via: []string{"10.0.5.11"}}
	return one, t.AwaitRoute(ctx, hops)
}

// accept has a server accept connections until the lab is removed. Only the first one's are recorded.
func (t *testbed) accept(server int, one *target) error {
	var listener *net.TCPListener
	err := t.Do(serverName(server), func() (err error) {
		listener, err = net.ListenTCP("tcp4", &net.TCPAddr{Port: one.port})
		return err
	})
	if err != nil {
		return err
	}
	go func() {
		defer listener.Close()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			if server == 0 {
				select {
				case one.arrivals <- time.Now():
				default:
				}
			}
		}
	}()
	return nil
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
	found.total = append(found.total, bench.Milliseconds(arrived.Sub(began)))
	found.octavia = append(found.octavia, bench.Milliseconds(written.Sub(began)))
	found.fairlead = append(found.fairlead, bench.Milliseconds(arrived.Sub(written)))
	found.answered = append(found.answered, bench.Milliseconds(answered.Sub(began)))
	return nil
}

// drain forgets an arrival.
func (one *target) drain() {
	select {
	case <-one.arrivals:
	default:
	}
}

// send opens connections from the client until ctx ends.
func (t *testbed) send(ctx context.Context, one *target) error {
	to := netip.AddrPortFrom(netip.MustParseAddr(one.VIP), uint16(one.port)).String()
	return t.Do("client", func() error {
		for ticker := time.NewTicker(sendPause); ; {
			conn, err := net.DialTimeout("tcp4", to, changeTimeout)
			if err == nil {
				err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
			}
			if err != nil {
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
	r.AddDistribution("create_to_packet_ms", "ms", c.total, nil)
	r.AddDistribution("create_to_write_ms", "ms", c.octavia, nil)
	r.AddDistribution("write_to_packet_ms", "ms", c.fairlead, nil)
	r.AddDistribution("create_answer_ms", "ms", c.answered, nil)
	r.Judge("write_to_packet_ms: 99 of 100 new members get a packet within so many milliseconds after the driver's write",
		bench.Documented, bench.AtMost(packetTarget), c.fairlead.Percentile(99))
}
