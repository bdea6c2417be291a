// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"time"

	"fairlead.io/fairlead/internal/dataplane/xdp/program"
	"fairlead.io/fairlead/internal/dataplane/xdp/table"
	"fairlead.io/fairlead/internal/lb"
)

// forwarding is the mode in which a service's packets reach its backends.
type forwarding struct {
	mode lb.Forward
	// overlay is set if clients' packets arrive inside VXLAN or Geneve.
	overlay bool
	// natIdle is how long an established NAT session may be silent, in the unit of
	// flow records; 0 in other modes.
	natIdle uint32
}

// establishedIdle is how long an established TCP connection may be silent: two
// hours and four minutes (RFC 5382, REQ-5).
const establishedIdle = 2*time.Hour + 4*time.Minute

func (f *forwarding) describe(svc *lb.Service) {
	f.mode, f.overlay, f.natIdle = svc.Forward, svc.Segment.Overlay(), 0
	if !svc.Forward.Translates() {
		return
	}
	idle := svc.Idle()
	if svc.IdleTimeout == 0 && svc.Protocol == lb.TCP {
		idle = establishedIdle
	}
	f.natIdle = uint32(idle >> table.FlowTimeShift)
}

func (f *forwarding) needs() program.Features {
	return when(f.overlay, program.FeatureOverlay) | map[lb.Forward]program.Features{
		lb.L2DSR:  program.FeatureL2DSR,
		lb.IPIP:   program.FeatureIPIP,
		lb.GUE:    program.FeatureGUE,
		lb.VXLAN:  program.FeatureVXLAN,
		lb.Geneve: program.FeatureGeneve,
		lb.NAT:    program.FeatureNAT,
		lb.DSR:    program.FeatureNAT | program.FeatureDSR,
	}[f.mode]
}

func (f *forwarding) flags() table.BalancerViewFlag {
	switch f.mode {
	case lb.DSR:
		return table.BalancerViewFlagVIEW_NAT | table.BalancerViewFlagVIEW_DSR
	case lb.NAT:
		return table.BalancerViewFlagVIEW_NAT
	default:
		return 0
	}
}

func (f *forwarding) option(o *table.Options, _ []slot, _ *table.Options) { o.NatIdle = f.natIdle }
