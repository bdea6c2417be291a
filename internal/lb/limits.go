// SPDX-License-Identifier: Apache-2.0

package lb

// MaxNewFlows is the largest limit of new flows in a second.
const MaxNewFlows = 10_000_000

// FlowLimits says how many new flows a service takes on one node. A second's
// worth may come at once; after that they may come as evenly as the limit says.
// Flows that are there already are never limited.
type FlowLimits struct {
	// NewFlows is the number in a second of the service as a whole,
	// NewFlowsPerSource that of each client: an IPv4 address or an IPv6 network
	// of 64 bits. 0 is no limit.
	NewFlows          int `json:"newFlows,omitzero"`
	NewFlowsPerSource int `json:"newFlowsPerSource,omitzero"`
}

func (l FlowLimits) check(f *findings, path string) {
	check := func(field string, n int) {
		if n < 0 || n > MaxNewFlows {
			f.add(path+"."+field, OutOfRange(n, 0, MaxNewFlows))
		}
	}
	check("newFlows", l.NewFlows)
	check("newFlowsPerSource", l.NewFlowsPerSource)
}
