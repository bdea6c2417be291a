// SPDX-License-Identifier: Apache-2.0

package metric

import "fairlead.io/fairlead/internal/observe"

// exits are the ways that packets left the data plane; every packet left by one
// of them. ARCHITECTURE.md says what each name means.
func exits() collectable {
	return subject[observe.Exit]{
		labels: []string{"exit"},
		things: func(l *look) []observe.Exit { return l.Status.Exits },
		values: func(e observe.Exit) []string { return []string{e.Name} },
		metrics: []metric[observe.Exit]{
			counter("fairlead_dataplane_packets_total", "Packets by the way they left the data plane: passed to the kernel, dropped, forwarded or answered.",
				func(e observe.Exit) float64 { return float64(e.Packets) }),
		},
	}.prepared()
}

// attachments are the interfaces on which packets are balanced.
func attachments() collectable {
	return subject[observe.Attachment]{
		labels: []string{"interface", "mode"},
		things: func(l *look) []observe.Attachment { return l.Status.DataPlane.Attachments },
		values: func(a observe.Attachment) []string { return []string{a.Interface, a.Mode} },
		metrics: []metric[observe.Attachment]{
			info[observe.Attachment]("fairlead_dataplane_attachment_info", "An interface on which packets are balanced; its mode is native (in the driver) or generic (in the network stack, slower)."),
		},
	}.prepared()
}
