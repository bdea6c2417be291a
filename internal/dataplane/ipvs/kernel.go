// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
)

// kernel is a network namespace's state as far as this package uses it. Its methods run on
// a thread in the namespace.
type kernel struct {
	log       *slog.Logger
	namespace *namespace
	ipvs      *conn
	rtnetlink *netlink.Handle
	tables    tables
	tuned     tuned
	// forwarding is Config.Forwarding.
	forwarding bool
}

// openKernel opens the kernel of the calling thread's network namespace.
func openKernel(log *slog.Logger) (k *kernel, err error) {
	k = &kernel{log: log, tuned: tuned{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	if k.namespace, err = openNamespace(); err != nil {
		return k, err
	}
	if k.ipvs, err = dial(); err != nil {
		return k, err
	}
	if k.rtnetlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return k, fmt.Errorf("rtnetlink: %w", err)
	}
	k.tables, err = openTables()
	return k, err
}

func (k *kernel) close() error {
	var errs []error
	if k.rtnetlink != nil {
		k.rtnetlink.Close()
	}
	if k.ipvs != nil {
		errs = append(errs, k.ipvs.Close())
	}
	if k.namespace != nil {
		errs = append(errs, k.namespace.file.Close())
	}
	return errors.Join(errs...)
}

// read returns IPVS's service of an id, nil without one.
func (k *kernel) read(i id) (*description, error) {
	v, err := k.ipvs.virtual(i)
	if v == nil || err != nil {
		return nil, err
	}
	d := &description{virtual: v.virtual}
	servers, err := k.ipvs.servers(i)
	for _, s := range servers {
		d.servers = append(d.servers, s.server)
	}
	return d, err
}

// program replaces an IPVS service, nil if there is none, by the wanted one. New servers
// come before others leave. Those in keep are not deleted, and a server of the mode before stays, with
// weight 0, until its connections have ended.
func (k *kernel) program(is *description, want description, keep bool) error {
	created := is == nil
	if created {
		if err := k.ipvs.change(commandNewService, want.virtual); err != nil {
			return err
		}
		is = &description{virtual: want.virtual}
	}
	if is.virtual != want.virtual {
		if err := k.ipvs.change(commandSetService, want.virtual); err != nil {
			return err
		}
	}
	present := map[lb.BackendID]server{}
	for _, s := range is.servers {
		present[s.BackendID] = s
	}
	for _, s := range want.servers {
		before, known := present[s.BackendID]
		delete(present, s.BackendID)
		command := uint8(commandNewServer)
		switch {
		case known && before == s:
			continue
		case known:
			command = commandSetServer
		}
		if err := k.ipvs.changeServer(command, want.virtual.id, s); err != nil {
			return err
		}
	}
	if created {
		// The kernel still has the counters of servers that left with connections.
		return k.ipvs.change(commandZero, want.virtual)
	}
	if keep {
		return nil
	}
	if len(present) == 0 {
		return nil
	}
	now, err := k.ipvs.servers(want.virtual.id)
	if err != nil {
		return err
	}
	for _, s := range now {
		if _, leaves := present[s.BackendID]; !leaves {
			continue
		}
		command := uint8(commandDeleteServer)
		used := s.active > 0 || want.virtual.protocol != lb.TCP && s.inactive > 0
		if used && slices.ContainsFunc(want.servers, func(w server) bool { return w.Addr() == s.Addr() && w.method != s.method }) {
			command, s.weight = commandSetServer, 0
		}
		if err := k.ipvs.changeServer(command, want.virtual.id, s.server); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes IPVS's service of an id, if there is one.
func (k *kernel) remove(i id) error {
	err := k.ipvs.change(commandDeleteService, virtual{id: i})
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
