// SPDX-License-Identifier: Apache-2.0

package file

import (
	"math"

	"fairlead.io/fairlead/internal/lb"
)

// segment reads a virtual network. Which ids its type has is lb's to say.
func segment(to *lb.Segment) reader {
	return func(v value) {
		v.readFields(
			required("type", word(&to.Type)),
			optional("id", number(&to.ID, 0, math.MaxUint32)),
		)
	}
}
