// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"net/netip"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
)

// services are those that are desired and those that are being deleted. What
// they forwarded includes backends that have gone.
func services() collectable {
	return subject[observe.Service]{
		labels: []string{"service", "vip"},
		things: func(l *look) []observe.Service { return l.Services },
		values: func(s observe.Service) []string { return []string{s.Name, vip(s.VIP)} },
		metrics: []metric[observe.Service]{
			counter("fairlead_service_packets_total", "Packets sent to the service's backends.",
				func(s observe.Service) float64 { return float64(s.Packets) }),
			counter("fairlead_service_bytes_total", "Bytes of the frames of these packets, as they were received.",
				func(s observe.Service) float64 { return float64(s.Bytes) }),
			counter("fairlead_service_new_flows_total", "Flows that began: each SYN of TCP, each newly recorded flow of UDP.",
				func(s observe.Service) float64 { return float64(s.NewFlows) }),
			gauge("fairlead_service_backends", "Backends that are configured.",
				func(s observe.Service) float64 { return float64(s.Backends) }),
			gauge("fairlead_service_backends_in_use", "Backends that get new flows.",
				func(s observe.Service) float64 { return float64(s.BackendsInUse) }),
			gauge("fairlead_service_backends_healthy", "Backends that no health check found dead.",
				func(s observe.Service) float64 { return float64(s.BackendsHealthy) }),
			gauge("fairlead_service_backends_unhealthy", "Backends that health checks found dead.",
				func(s observe.Service) float64 { return float64(max(0, s.Backends-s.BackendsHealthy)) }),
			gauge("fairlead_service_backends_drained", "Backends of weight 0, which are meant to be out of use.",
				func(s observe.Service) float64 { return float64(s.BackendsDrained) }),
			gauge("fairlead_service_panic", "1 while so few backends are healthy that health is ignored.",
				func(s observe.Service) float64 { return truth(s.Panic) }),
			gauge("fairlead_service_drained", "1 while an operator keeps new flows from the service on this node.",
				func(s observe.Service) float64 { return truth(s.Drained) }),
			gauge("fairlead_service_programmed", "1 while the data plane has the service as it is configured.",
				func(s observe.Service) float64 { return truth(s.Programmed) }),
			gauge("fairlead_service_ring_entries", "Entries of the service's Maglev ring.",
				func(s observe.Service) float64 { return float64(s.RingSize) }),
		},
	}.prepared()
}

// vip writes a virtual address as a label: "10.1.1.1:80/tcp", and its segment
// behind a blank.
func vip(v lb.VIP) string {
	text := netip.AddrPortFrom(v.Address, v.Port).String() + "/" + v.Protocol.String()
	if v.Segment.Tagged() {
		text += " " + v.Segment.String()
	}
	return text
}
