// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// datagramRate is how many datagrams are sent in a second, one after the other
	// by different flows.
	datagramRate = 2000
	// datagramFlows is how many flows there are.
	datagramFlows = 256
	// lateness is how long after it was sent a datagram may be answered.
	lateness = time.Second
)

// datagrams are numbered UDP datagrams, sent at a constant rate to echo servers
// (netlab.Echo), whatever comes back.
type datagrams struct {
	flows []*datagramFlow
	// readers receive answers, sender sends.
	readers sync.WaitGroup
	sender  sync.WaitGroup
	quit    chan struct{}

	mu   sync.Mutex
	sent []datagram // by number
}

// datagramFlow is a socket's; the target says how the flow is called.
type datagramFlow struct {
	conn   net.Conn
	target netip.AddrPort
	// server answered last, the datagram of that number.
	server string
	newest int
}

// datagram is one that was sent at that time.
type datagram struct {
	at       time.Time
	flow     *datagramFlow
	answered bool
	// moved is set if another server answered it than the flow's last one.
	moved bool
}

// sendDatagrams opens flows, evenly to all targets, and sends until stop.
func sendDatagrams(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), targets []netip.AddrPort) (*datagrams, error) {
	d := &datagrams{quit: make(chan struct{})}
	for n := range datagramFlows {
		target := targets[n%len(targets)]
		conn, err := dial(ctx, "udp", target.String())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("udp flow to %s: %w", target, err), d.stop())
		}
		f := &datagramFlow{conn: conn, target: target}
		d.flows = append(d.flows, f)
		d.readers.Go(func() { d.receive(f) })
	}
	d.sender.Go(d.send)
	return d, nil
}

// stop ends the flows.
func (d *datagrams) stop() error {
	close(d.quit)
	d.sender.Wait()
	var errs []error
	for _, f := range d.flows {
		errs = append(errs, f.conn.Close())
	}
	d.readers.Wait()
	return errors.Join(errs...)
}

// send sends what is due. If the machine is late the rest follows at once, so
// that the number of datagrams doesn't depend on it.
func (d *datagrams) send() {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	began := time.Now()
	for number := 0; ; {
		select {
		case <-d.quit:
			return
		case <-ticker.C:
		}
		for due := int(time.Since(began).Seconds() * datagramRate); number < due; number++ {
			f := d.flows[number%len(d.flows)]
			d.mu.Lock()
			d.sent = append(d.sent, datagram{at: time.Now(), flow: f})
			d.mu.Unlock()
			// What can't be sent is lost; an ICMP error of an earlier one is told here.
			_, _ = f.conn.Write(strconv.AppendInt(nil, int64(number), 10))
		}
	}
}

// receive notes a flow's answers until its socket is closed.
func (d *datagrams) receive(f *datagramFlow) {
	buffer := make([]byte, 128)
	for {
		n, err := f.conn.Read(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			d.take(f, string(buffer[:n]))
		}
	}
}

// take notes an answer. An answer that was overtaken says nothing of where the
// flow goes now.
func (d *datagrams) take(f *datagramFlow, answer string) {
	server, text, _ := strings.Cut(answer, " ")
	number, err := strconv.Atoi(text)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || number < 0 || number >= len(d.sent) || d.sent[number].answered {
		return
	}
	d.sent[number].answered = true
	if number < f.newest {
		return
	}
	d.sent[number].moved = f.server != "" && f.server != server
	f.server, f.newest = server, number
}

// fate is what became of the datagrams of some time.
type fate struct {
	sent, lost int
	// moved counts datagrams that another server answered than the one before.
	moved int
}

// fateOf tells what became of those that were sent from then on until then, to
// targets of one family. The caller has waited for late answers.
func (d *datagrams) fateOf(from, until time.Time, family family) fate {
	d.mu.Lock()
	defer d.mu.Unlock()
	var seen fate
	for i := len(d.sent) - 1; i >= 0 && !d.sent[i].at.Before(from); i-- {
		one := &d.sent[i]
		if one.at.After(until) || familyOf(one.flow.target.Addr()) != family {
			continue
		}
		seen.sent++
		if one.moved {
			seen.moved++
		}
		if !one.answered {
			seen.lost++
		}
	}
	return seen
}
