// SPDX-License-Identifier: Apache-2.0

package file

import "fairlead.io/fairlead/internal/lb"

// limits reads how fast new flows may come. 0 is refused: its author may mean
// none at all, and it would mean any number.
func limits(to *lb.FlowLimits) reader {
	return func(v value) {
		v.readFields(
			optional("newFlows", number(&to.NewFlows, 1, lb.MaxNewFlows)),
			optional("newFlowsPerSource", number(&to.NewFlowsPerSource, 1, lb.MaxNewFlows)),
		)
	}
}
