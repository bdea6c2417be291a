// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// TestMain makes the test binary stand in for an agent: an end of sessions that
// lives in a namespace, and can be stopped.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "end" {
		if err := endMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// order is a command for an end, report its reply: a status for each order, and events
// when they occur.
type order struct {
	// Set makes Peers the watched ones; otherwise Ask's status is queried.
	Set   bool
	Peers []Peer
	Ask   netip.Addr
	// Abandon ends all sessions silently.
	Abandon bool
}

type report struct {
	Event  *Event
	Status *bgp.PeerState
}

// endMain obeys until its input ends, and leaves its peers.
func endMain(in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	say := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		if err := encoder.Encode(r); err != nil {
			os.Exit(1)
		}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	m := New(log, func(e Event) { say(report{Event: &e}) })
	defer m.Close()
	orders := json.NewDecoder(in)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if o.Set {
			m.Set(o.Peers)
			for _, p := range o.Peers {
				time.AfterFunc(PassiveHold(p.BFD), func() { m.Established(p.Address) })
			}
		}
		if o.Abandon {
			m.Abandon()
		}
		s := bgp.PeerState{Address: o.Ask}
		m.Describe(&s)
		say(report{Status: &s})
	}
}

// end is a process in a lab's host that watches peers.
type end struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	status chan bgp.PeerState
	log    bytes.Buffer // to be read when the process has ended

	mu     sync.Mutex
	news   *sync.Cond
	events []Event
}

// startEnd starts an end, through another command if one is given. It is stopped
// when the test is over.
func startEnd(t *testing.T, lab *netlab.Lab, host string, through ...string) *end {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(through, []string{program, "end"})
	e := &end{t: t, name: host, cmd: exec.Command(args[0], args[1:]...), status: make(chan bgp.PeerState)}
	e.news = sync.NewCond(&e.mu)
	var out io.Reader
	if e.in, err = e.cmd.StdinPipe(); err == nil {
		out, err = e.cmd.StdoutPipe()
	}
	e.cmd.Stderr = io.MultiWriter(t.Output(), &e.log)
	if err == nil {
		err = lab.Do(host, e.cmd.Start)
	}
	if err != nil {
		t.Fatal(err)
	}
	e.orders = json.NewEncoder(e.in)
	go e.read(out)
	t.Cleanup(func() {
		e.signal(syscall.SIGCONT)
		e.leave()
	})
	return e
}

// read runs until the process ends.
func (e *end) read(out io.Reader) {
	reports := json.NewDecoder(out)
	for {
		var r report
		if err := reports.Decode(&r); err != nil {
			close(e.status)
			return
		}
		if r.Status != nil {
			e.status <- *r.Status
			continue
		}
		e.mu.Lock()
		e.events = append(e.events, *r.Event)
		e.news.Broadcast()
		e.mu.Unlock()
	}
}

// set says whom the end watches.
func (e *end) set(peers ...Peer) {
	e.t.Helper()
	if err := e.orders.Encode(order{Set: true, Peers: peers}); err != nil {
		e.t.Fatal(err)
	}
	<-e.status
}

// ask returns the status of a peer.
func (e *end) ask(peer string) bgp.PeerState {
	e.t.Helper()
	if err := e.orders.Encode(order{Ask: netip.MustParseAddr(peer)}); err != nil {
		e.t.Fatal(err)
	}
	return <-e.status
}

// abandon makes the end abandon all sessions.
func (e *end) abandon() {
	e.t.Helper()
	if err := e.orders.Encode(order{Abandon: true}); err != nil {
		e.t.Fatal(err)
	}
	<-e.status
}

// mark is where the events that come from now on begin.
func (e *end) mark() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.events)
}

// await returns the first event since a mark that leads a peer's session to a
// state.
func (e *end) await(since int, peer string, state bgp.BFDState) Event {
	e.t.Helper()
	late := false
	timer := time.AfterFunc(await.Patience, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		late = true
		e.news.Broadcast()
	})
	defer timer.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		for _, event := range e.events[since:] {
			if event.Peer == netip.MustParseAddr(peer) && event.New == state {
				return event
			}
		}
		if late {
			e.t.Fatalf("%s: session with %s does not become %s: %+v", e.name, peer, state, e.events[since:])
		}
		e.news.Wait()
	}
}

// quiet fails if something has happened since a mark.
func (e *end) quiet(since int) {
	e.t.Helper()
	e.quietWith(since, "")
}

// quietWith is quiet for one peer; empty for all.
func (e *end) quietWith(since int, peer string) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events[since:] {
		if peer == "" || event.Peer.String() == peer {
			e.t.Errorf("%s: %+v, want no event", e.name, event)
		}
	}
}

func (e *end) signal(s syscall.Signal) {
	if err := e.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		e.t.Error(err)
	}
}

// leave stops the process, once.
func (e *end) leave() {
	if e.cmd.ProcessState != nil {
		return
	}
	_ = e.in.Close() // the process may be gone
	for range e.status {
	}
	if err := e.cmd.Wait(); err != nil {
		e.t.Errorf("%s: %v", e.name, err)
	}
}

// kill kills the process.
func (e *end) kill() {
	e.signal(syscall.SIGKILL)
	for range e.status {
	}
	_ = e.cmd.Wait() // killed
}
