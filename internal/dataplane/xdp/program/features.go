// SPDX-License-Identifier: Apache-2.0

package program

import (
	"strings"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// Features are the parts of the program that services need. The others are
// switched off by load-time constants, and the verifier removes their code.
type Features uint32

// The features, by their bits in program names.
const (
	FeatureL2DSR Features = 1 << iota
	FeatureIPIP
	FeatureGUE
	FeatureVXLAN
	FeatureGeneve
	FeatureOverlay // services inside VXLAN or Geneve segments
	FeatureSources
	FeatureLimits
	FeatureQUIC
	FeatureReject
	FeatureNAT
	FeatureDSR // with featureNAT
	FeatureClients
	FeatureMember

	AllFeatures Features = 1<<iota - 1
)

// featureConstants names the constants by their bits.
func featureConstants() []string {
	return []string{
		table.BalancerVarFeatureL2dsr,
		table.BalancerVarFeatureIpip,
		table.BalancerVarFeatureGue,
		table.BalancerVarFeatureVxlan,
		table.BalancerVarFeatureGeneve,
		table.BalancerVarFeatureOverlay,
		table.BalancerVarFeatureSources,
		table.BalancerVarFeatureLimits,
		table.BalancerVarFeatureQuic,
		table.BalancerVarFeatureReject,
		table.BalancerVarFeatureNat,
		table.BalancerVarFeatureDsr,
		table.BalancerVarFeatureClients,
		table.BalancerVarFeaturePeers,
	}
}

// String lists the features by their names in bpf/core/config.h.
func (f Features) String() string {
	var names []string
	for bit, name := range featureConstants() {
		if f>>bit&1 != 0 {
			names = append(names, strings.TrimPrefix(name, "feature_"))
		}
	}
	return strings.Join(names, " ")
}

// replacement is why a program with other features replaces one.
func replacement(before, after Features) string {
	var reasons []string
	if more := after &^ before; more != 0 {
		reasons = append(reasons, "services need "+more.String())
	}
	if less := before &^ after; less != 0 {
		reasons = append(reasons, "no service needs "+less.String())
	}
	return strings.Join(reasons, ", ")
}

// featureCounts counts the services that need each feature, by its bit.
type featureCounts [32]int

// needed returns the features that at least one service needs.
func (c *featureCounts) needed() Features {
	var f Features
	for bit, n := range c {
		if n > 0 {
			f |= 1 << bit
		}
	}
	return f
}
