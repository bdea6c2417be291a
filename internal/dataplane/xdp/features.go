// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"fairlead.io/fairlead/internal/lb"
)

// features are the parts of the program that services need. The others are
// switched off by load-time constants, and the verifier removes their code
// (DESIGN.md §5).
type features uint32

const (
	featureL2DSR features = 1 << iota
	featureIPIP
	featureGUE
	featureVXLAN
	featureGeneve
	featureOverlay // services inside VXLAN or Geneve segments
	featureSources
	featureLimits
	featureQUIC
	featureReject
	featureNAT
	featureDNAT // with featureNAT
	featureClients
	featureMember

	allFeatures features = 1<<iota - 1
)

// featureConstants names the constants by their bits.
func featureConstants() []string {
	return []string{
		balancerVarFeatureL2dsr,
		balancerVarFeatureIpip,
		balancerVarFeatureGue,
		balancerVarFeatureVxlan,
		balancerVarFeatureGeneve,
		balancerVarFeatureOverlay,
		balancerVarFeatureSources,
		balancerVarFeatureLimits,
		balancerVarFeatureQuic,
		balancerVarFeatureReject,
		balancerVarFeatureNat,
		balancerVarFeatureDnat,
		balancerVarFeatureClients,
		balancerVarFeatureMember,
	}
}

// featuresOf is what a service needs.
func featuresOf(svc *lb.Service) features {
	f := map[lb.Forward]features{
		lb.L2DSR:  featureL2DSR,
		lb.IPIP:   featureIPIP,
		lb.GUE:    featureGUE,
		lb.VXLAN:  featureVXLAN,
		lb.Geneve: featureGeneve,
		lb.NAT:    featureNAT,
		lb.DNAT:   featureNAT | featureDNAT,
	}[svc.Forward]
	if svc.Segment.Overlay() {
		f |= featureOverlay
	}
	if svc.Membership.Self.IsValid() {
		f |= featureMember
	}
	if svc.Sources.Verdicts(svc.Address) != nil {
		f |= featureSources
	}
	if svc.Limits != (lb.FlowLimits{}) {
		f |= featureLimits
	}
	if svc.Affinity == lb.AffinityQUIC {
		f |= featureQUIC
	}
	if clientIdle(svc) > 0 {
		f |= featureClients
	}
	if svc.Unavailable == lb.Reject {
		f |= featureReject
	}
	return f
}

// set writes the constants of a program that has these features.
func (f features) set(spec *ebpf.CollectionSpec) error {
	for bit, name := range featureConstants() {
		if err := spec.Variables[name].Set(uint8(f >> bit & 1)); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return nil
}

// String lists the features by their names in bpf/config.h.
func (f features) String() string {
	var names []string
	for bit, name := range featureConstants() {
		if f>>bit&1 != 0 {
			names = append(names, strings.TrimPrefix(name, "feature_"))
		}
	}
	return strings.Join(names, " ")
}

// replacement says why a program with other features takes the place of one.
func replacement(before, after features) string {
	var reasons []string
	if more := after &^ before; more != 0 {
		reasons = append(reasons, "services need "+more.String())
	}
	if less := before &^ after; less != 0 {
		reasons = append(reasons, "no service needs "+less.String())
	}
	return strings.Join(reasons, ", ")
}
