// SPDX-License-Identifier: Apache-2.0

package fib

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer holds what comes while the watcher has no processor.
	receiveBuffer = 8 << 20
	// messageSize is more than the kernel puts into one datagram.
	messageSize = 64 << 10
)

// Watcher follows the routes to some prefixes. Its methods may be called by
// several goroutines.
type Watcher struct {
	socket *os.File
	ended  chan struct{}

	mu     sync.Mutex
	table  *table
	now    map[netip.Prefix]Hops
	events []Event
	// news is closed, and another one made, when anything below it changes.
	news chan struct{}
	err  error
}

// Watch begins in the network namespace of the calling thread.
func Watch(prefixes ...netip.Prefix) (*Watcher, error) {
	socket, err := subscribe()
	if err != nil {
		return nil, fmt.Errorf("route notifications: %w", err)
	}
	w := &Watcher{
		socket: socket, ended: make(chan struct{}),
		table: newTable(), now: map[netip.Prefix]Hops{}, news: make(chan struct{}),
	}
	// What changes in between is told as well: at worst an old state is seen twice.
	if err := w.dump(); err != nil {
		return nil, errors.Join(fmt.Errorf("routes: %w", err), socket.Close())
	}
	for _, p := range prefixes {
		w.now[p] = w.table.lookup(p)
	}
	go w.follow()
	return w, nil
}

// subscribe opens a socket that gets the kernel's notifications.
func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	for _, group := range []int{unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEXTHOP} {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
		}
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// dump reads what there is.
func (w *Watcher) dump() error {
	objects := nl.NewNetlinkRequest(unix.RTM_GETNEXTHOP, unix.NLM_F_DUMP)
	objects.AddRawData(make([]byte, unix.SizeofNhmsg))
	routes := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	routes.AddRawData(make([]byte, unix.SizeofRtMsg))
	for _, request := range []struct {
		*nl.NetlinkRequest
		answer uint16
	}{{objects, unix.RTM_NEWNEXTHOP}, {routes, unix.RTM_NEWROUTE}} {
		answers, err := request.Execute(unix.NETLINK_ROUTE, request.answer)
		if err != nil {
			return err
		}
		for _, data := range answers {
			if err := w.learn(request.answer, data); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Watcher) learn(kind uint16, data []byte) error {
	m, ok, err := parse(kind, data)
	if ok {
		w.table.apply(m)
	}
	return err
}

// follow takes notifications until Close.
func (w *Watcher) follow() {
	defer close(w.ended)
	buffer := make([]byte, messageSize)
	for {
		n, err := w.socket.Read(buffer)
		at := time.Now()
		if err == nil {
			err = w.take(at, buffer[:n])
		}
		if err != nil {
			w.fail(err)
			return
		}
	}
}

// take notes what one datagram tells, which may be several messages.
func (w *Watcher) take(at time.Time, data []byte) error {
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range messages {
		if err := w.learn(m.Header.Type, m.Data); err != nil {
			return err
		}
		w.compare(at)
	}
	return nil
}

// compare makes an event of every prefix whose next hops are others than before.
func (w *Watcher) compare(at time.Time) {
	changed := false
	for prefix, old := range w.now {
		if hops := w.table.lookup(prefix); !hops.Equal(old) {
			w.now[prefix] = hops
			w.events = append(w.events, Event{At: at, Prefix: prefix, Hops: hops})
			changed = true
		}
	}
	if changed {
		w.announce()
	}
}

// announce wakes those who wait. The caller holds the lock.
func (w *Watcher) announce() {
	close(w.news)
	w.news = make(chan struct{})
}

func (w *Watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrClosed):
		w.err = err
	case errors.Is(err, unix.ENOBUFS):
		w.err = errors.New("route notifications: more came than could be read")
	default:
		w.err = fmt.Errorf("route notifications: %w", err)
	}
	w.announce()
}

// Hops returns the next hops to a watched prefix.
func (w *Watcher) Hops(prefix netip.Prefix) Hops {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.now[prefix])
}

// Take returns the events since the last call, and why there will be no more if
// the watcher has failed.
func (w *Watcher) Take() ([]Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events, w.err
}

// Await waits until all the prefixes have these next hops. It fails if ctx ends
// before, and says what they are instead.
func (w *Watcher) Await(ctx context.Context, want map[netip.Prefix]Hops) error {
	for {
		wrong, news, err := w.differ(want)
		if err != nil || wrong == nil {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return errors.Join(wrong, ctx.Err())
		}
	}
}

// differ says what is not as wanted, and returns the channel that is closed at
// the next change.
func (w *Watcher) differ(want map[netip.Prefix]Hops) (wrong error, news <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for prefix, hops := range want {
		if now := w.now[prefix]; !now.Equal(hops) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %s, want %s", prefix, now, hops))
		}
	}
	return wrong, w.news, w.err
}

// Close ends the watch.
func (w *Watcher) Close() error {
	err := w.socket.Close()
	<-w.ended
	return err
}
