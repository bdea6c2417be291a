// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"

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

	allFeatures features = 1<<iota - 1
)

// featureOf is what a service needs.
func featuresOf(svc *lb.Service) features {
	switch svc.Forward {
	case lb.IPIP:
		return featureIPIP
	default:
		return featureL2DSR
	}
}

// set writes the constants of a program that has these features.
func (f features) set(spec *ebpf.CollectionSpec) error {
	for name, feature := range map[string]features{
		balancerVarFeatureL2dsr: featureL2DSR,
		balancerVarFeatureIpip:  featureIPIP,
	} {
		var on uint8
		if f&feature != 0 {
			on = 1
		}
		if err := spec.Variables[name].Set(on); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return nil
}
