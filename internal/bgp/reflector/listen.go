// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"net/netip"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/tcp"
)

// listen opens the sockets at which clients and passive routers call.
func (r *Reflector) listen() error {
	keys, err := keysOf(&r.config)
	if err != nil {
		return err
	}
	for _, address := range r.config.Listen {
		l, err := tcp.Listen(r.ctx, netip.AddrPortFrom(address, r.config.ListenPort()), keys)
		if err != nil {
			return err
		}
		r.listeners = append(r.listeners, l)
		r.work.Go(func() { l.Run(r.log, r.admit) })
	}
	r.work.Go(func() { tcp.Reread(r.ctx, r.reread) })
	return nil
}

// keysOf reads the passwords of those who may call.
func keysOf(r *bgp.Reflection) (tcp.Keys, error) {
	keys := tcp.Keys{}
	for _, c := range r.Clients {
		if err := keys.Add(c.Prefix, c.Password); err != nil {
			return nil, fmt.Errorf("range %s: %w", c.Prefix, err)
		}
	}
	for _, p := range r.Routers {
		if err := keys.Add(tcp.Host(p.Address), p.Password); err != nil {
			return nil, fmt.Errorf("router %s: %w", p.Address, err)
		}
	}
	return keys, nil
}

// reread takes over passwords that are others by now.
func (r *Reflector) reread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rekey(keysOf(&r.config))
}

// rekey makes keys those of connections to come. If they couldn't be read, or the
// kernel doesn't take them, it is tried again with the next ones. The caller holds
// the lock.
func (r *Reflector) rekey(keys tcp.Keys, err error) {
	for _, l := range r.listeners {
		if err == nil {
			err = l.Rekey(keys)
		}
	}
	if err != nil && (r.unkeyed == nil || r.unkeyed.Error() != err.Error()) {
		r.log.Warn("passwords not set", "error", err)
	}
	r.unkeyed = err
}
