// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// sources are the clients that may use a service: a list in the tables.
type sources struct {
	verdicts map[netip.Prefix]bool
	list     table.SourceList
}

func (l *sources) describe(svc *lb.Service) { l.verdicts = svc.Sources.Verdicts(svc.Address) }

func (l *sources) needs() program.Features { return when(l.verdicts != nil, program.FeatureSources) }

func (l *sources) flags() table.BalancerViewFlag {
	return when(l.list.Number.Size != 0, table.BalancerViewFlagVIEW_SOURCES)
}

// stage writes the list, if it is another one than before.
func (l *sources) stage(t *table.Tables, _ []slot, old property) (err error) {
	l.list, err = t.Sources.Stage(old.(*sources).list, l.verdicts)
	return err
}

func (l *sources) same(old property) bool { return l.list.Number == old.(*sources).list.Number }

func (l *sources) write(t *table.Tables, number, view uint32, _ property) error {
	return t.WriteSourceList(number, view, l.list.Number.Base)
}

func (l *sources) retire(t *table.Tables, _ uint32, next property, after table.Ticket) error {
	if next == nil || !l.same(next) {
		t.Sources.Retire(l.list, after)
		l.list = table.SourceList{}
	}
	return nil
}

func (l *sources) adopt(t *table.Tables, _ uint32, s *table.BalancerService, _ []slot) (err error) {
	view := s.Active & 1
	if table.BalancerViewFlag(s.View[view].Flags)&table.BalancerViewFlagVIEW_SOURCES != 0 {
		l.list, err = t.Sources.Claim(s.Sources[view])
	}
	return err
}
