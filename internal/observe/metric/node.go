// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"runtime"

	"fairlead.io/fairlead/internal/observe"
)

// itself is the one thing of a subject without labels, or of an info.
func itself(l *look) []*look { return []*look{l} }

func configuration() collectable {
	return subject[observe.Config]{
		things: func(l *look) []observe.Config { return []observe.Config{l.Status.Config} },
		metrics: []metric[observe.Config]{
			gauge("fairlead_config_refused", "1 while the configuration file as it is was refused, and the one before it is in force.",
				func(c observe.Config) float64 { return truth(c.Error != "") }),
			gauge("fairlead_config_last_loaded_timestamp_seconds", "When the configuration that is in force was read.",
				func(c observe.Config) float64 { return float64(c.Loaded.UnixMilli()) / 1000 }),
		},
	}.prepared()
}

func node() collectable {
	return subject[*look]{
		things: itself,
		metrics: []metric[*look]{
			gauge("fairlead_node_draining", "1 while the node is being taken out of service.",
				func(l *look) float64 { return truth(l.Status.Draining) }),
			gauge("fairlead_observe_backends_left_out", "Backends without metrics of their own, as there are too many.",
				func(l *look) float64 { return float64(l.leftOut()) }),
		},
	}.prepared()
}

func build() collectable {
	return subject[*look]{
		labels: []string{"version", "commit", "goversion", "kernel", "node", "dataplane"},
		things: itself,
		values: func(l *look) []string {
			s := l.Status
			return []string{s.Version, s.Commit, runtime.Version(), l.kernel, s.Node, s.DataPlane.Kind}
		},
		metrics: []metric[*look]{
			info[*look]("fairlead_build_info", "What runs where: the agent's version and commit, the Go that compiled it, the kernel, the node's name and the kind of its data plane."),
		},
	}.prepared()
}
