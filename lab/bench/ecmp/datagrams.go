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
	// datagramRate is in datagrams a second, over all flows in turn.
	datagramRate  = 2000
	datagramFlows = 256
	// answerTimeout is the time after which a datagram without an answer is lost.
	answerTimeout = time.Second
)

// datagrams are numbered UDP datagrams, sent at a constant rate to echo servers
// (netlab.Echo), regardless of the answers.
type datagrams struct {
	flows []*datagramFlow
	// readers receive answers, sender sends.
	readers sync.WaitGroup
	sender  sync.WaitGroup
	quit    chan struct{}

	mu   sync.Mutex
	sent []datagram // by number
}

// datagramFlow is one socket.
type datagramFlow struct {
	conn   net.Conn
	target netip.AddrPort
	// server sent the last answer, to the datagram newest.
	server string
	newest int
}

type datagram struct {
	at       time.Time
	flow     *datagramFlow
	answered bool
	// moved is set if the flow's last answer came from another server.
	moved bool
}

// sendDatagrams opens flows, evenly to all targets, and sends until stop is called.
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

// send keeps the rate: after a delay it catches up.
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
			// An error is a loss, of this datagram or (ICMP) of an earlier one.
			_, _ = f.conn.Write(strconv.AppendInt(nil, int64(number), 10))
		}
	}
}

// receive records a flow's answers until its socket is closed.
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

// take records an answer. An answer that was overtaken doesn't move the flow.
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

// counts of the datagrams of some time.
type counts struct {
	sent, lost int
	// moved counts datagrams answered by another server than the one before.
	moved int
}

// count counts the datagrams that were sent in that time to targets of one family.
// The caller has waited for answerTimeout.
func (d *datagrams) count(from, until time.Time, family family) counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	var seen counts
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
