// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"net"
	"net/netip"

	"fairlead.io/fairlead/api/v1alpha1"
)

// MaxAddresses is how many addresses a node reports.
const MaxAddresses = 256

// OwnAddresses returns the addresses of all interfaces.
func OwnAddresses() (all []netip.Addr, err error) {
	found, err := net.InterfaceAddrs()
	for _, f := range found {
		if network, is := f.(*net.IPNet); is {
			if a, ok := netip.AddrFromSlice(network.IP); ok {
				all = append(all, a.Unmap())
			}
		}
	}
	return all, err
}

// Reporter is a source that publishes what the node serves and has forwarded.
type Reporter interface {
	// Report writes a report, or keeps it until it can be written. It doesn't change the report.
	Report(ctx context.Context, r *v1alpha1.BalancerNodeStatus) error
	// ReportStatistics writes counters, or keeps them.
	ReportStatistics(ctx context.Context, s *v1alpha1.BalancerNodeStatisticsStatus) error
	// Delivered returns the versions of the newest objects of the last update that was accepted.
	Delivered() v1alpha1.ObservedVersions
	// Draining reports that the source takes the node out of service.
	Draining() bool
}
