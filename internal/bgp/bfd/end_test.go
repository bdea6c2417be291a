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
	"fairlead.io/fairlead/internal/netlab"
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

// order is what an end is told, report what it answers: a status to each order,
// and events when they come.
type order struct {
	// Set says that Peers are to be watched; else Ask's status is wanted.
	Set   bool
	Peers []Peer
	Ask   netip.Addr
	// Abandon ends all sessions without a word.
	Abandon bool
}

type report struct {
	Event  *Event
	Status *Status
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
			if err := m.Set(o.Peers); err != nil {
				return err
			}
			for _, p := range o.Peers {
				time.AfterFunc(Listening(p.BFD), func() { m.Begin(p.Address) })
			}
		}
		if o.Abandon {
			m.Abandon()
		}
		s, _ := m.State(o.Ask)
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
	status chan Status
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
	e := &end{t: t, name: host, cmd: exec.Command(args[0], args[1:]...), status: make(chan Status)}
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
func (e *end) ask(peer string) Status {
	e.t.Helper()
	if err := e.orders.Encode(order{Ask: netip.MustParseAddr(peer)}); err != nil {
		e.t.Fatal(err)
	}
	return <-e.status
}

// abandon has the end leave all peers without a word.
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
	timer := time.AfterFunc(patience, func() {
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

// quiet reports whether nothing has happened since a mark.
func (e *end) quiet(since int) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.events) > since {
		e.t.Errorf("%s: %+v, want no event", e.name, e.events[since:])
	}
}

func (e *end) signal(s syscall.Signal) {
	if err := e.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		e.t.Error(err)
	}
}

// leave ends the process in good order, once.
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

// kill ends the process without a word.
func (e *end) kill() {
	e.signal(syscall.SIGKILL)
	for range e.status {
	}
	_ = e.cmd.Wait() // killed
}
