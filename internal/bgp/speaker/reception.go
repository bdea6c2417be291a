// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/neighbour"
	"fairlead.io/fairlead/internal/bgp/tcp"
)

// reception takes the calls of passive peers. It listens only where one is
// expected.
type reception struct {
	log *slog.Logger
	// quit ends the goroutine that reads passwords; work are that one and those of
	// listeners.
	ctx  context.Context
	quit context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	listeners map[netip.Addr]*tcp.Listener // by what they listen at
	expected  map[netip.Addr]*neighbour.Neighbour
}

func newReception(log *slog.Logger) *reception {
	r := &reception{log: log, listeners: make(map[netip.Addr]*tcp.Listener)}
	r.ctx, r.quit = context.WithCancel(context.Background())
	r.work.Go(func() { tcp.Reread(r.ctx, r.rekey) })
	return r
}

// expect makes neighbours, those of them that are passive, all that may call.
func (r *reception) expect(neighbours map[netip.Addr]*neighbour.Neighbour) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected = make(map[netip.Addr]*neighbour.Neighbour)
	wanted := make(map[netip.Addr]bool)
	for addr, n := range neighbours {
		if n.Peer().Passive {
			r.expected[addr] = n
			wanted[anyOf(addr)] = true
		}
	}
	for at, l := range r.listeners {
		if !wanted[at] {
			l.Close()
			delete(r.listeners, at)
		}
	}
	keys, err := r.keys()
	errs := []error{err}
	for at := range wanted {
		errs = append(errs, r.listen(at, keys))
	}
	return errors.Join(errs...)
}

// anyOf is where calls from addr are waited for.
func anyOf(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// listen opens the listener at an address, or gives it other keys.
func (r *reception) listen(at netip.Addr, keys tcp.Keys) error {
	if l := r.listeners[at]; l != nil {
		return l.Rekey(keys)
	}
	l, err := tcp.Listen(r.ctx, netip.AddrPortFrom(at, bgp.Port), keys)
	if err != nil {
		return err
	}
	r.listeners[at] = l
	r.work.Go(func() { l.Run(r.log, r.admit) })
	return nil
}

// keys reads the passwords of those who are expected. One that can't be read keeps
// its peer out: nobody else knows the key that it gets.
func (r *reception) keys() (tcp.Keys, error) {
	keys := tcp.Keys{}
	var errs []error
	for addr, n := range r.expected {
		peer := n.Peer()
		if err := keys.Add(tcp.Host(addr), peer.Password); err != nil {
			errs = append(errs, fmt.Errorf("peer %s: %w", addr, err))
			keys[tcp.Host(addr)] = rand.Text()
			n.Unreadable(err)
		}
	}
	return keys, errors.Join(errs...)
}

// admit hands a call over to whom it is for.
func (r *reception) admit(conn *net.TCPConn) {
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	r.mu.Lock()
	n := r.expected[from]
	r.mu.Unlock()
	if n == nil {
		r.log.Debug("call refused", "from", from)
		conn.Close()
		return
	}
	n.Call(conn)
}

// rekey keeps the passwords up to date.
func (r *reception) rekey() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.listeners) == 0 {
		return
	}
	keys, _ := r.keys() // errors are the neighbours' reasons
	for _, l := range r.listeners {
		if err := l.Rekey(keys); err != nil {
			r.log.Warn("passwords not set", "error", err)
		}
	}
}

// close ends all listeners.
func (r *reception) close() {
	r.quit()
	_ = r.expect(nil) // there is nothing to listen at
	r.work.Wait()
}
