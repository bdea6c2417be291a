// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"net/netip"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// sources are the clients that may use a service.
type sources struct {
	verdicts map[netip.Prefix]bool
}

func (l *sources) describe(svc *lb.Service) { l.verdicts = svc.Sources.Verdicts(svc.Address) }

func (l *sources) needs() program.Features { return when(l.verdicts != nil, program.FeatureSources) }

func (l *sources) flags() table.BalancerViewFlag {
	return when(len(l.verdicts) > 0, table.BalancerViewFlagVIEW_SOURCES)
}

func (l *sources) option(o *table.Options, _ []slot, _ *table.Options) { o.Sources = l.verdicts }
