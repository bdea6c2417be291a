// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"io"
	"time"
)

// WriteDrains prints drains for people, in the order given.
func WriteDrains(w io.Writer, drains []Drain) error {
	return writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "DRAINED\tSINCE\tFLOWS\tPACKETS/S\tSTATUS")
		for _, d := range drains {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", d.DrainTarget, d.Since.Format(time.RFC3339), d.Flows, human(d.PacketsPerSecond), d.condition())
		}
	})
}

// Progress is one line that says how far the drain has come.
func (d Drain) Progress() string {
	return fmt.Sprintf("%s: %s left, %s packets/s; %s", d.DrainTarget, counted(d.Flows, "flow", "flows"), human(d.PacketsPerSecond), d.condition())
}

// condition says what else there is to know.
func (d Drain) condition() string {
	switch {
	case !d.Desired:
		return "not in the configuration"
	case d.DrainTarget == DrainTarget{}:
		return "packets that come are balanced"
	case d.Silent > 0:
		return fmt.Sprintf("flows that have been silent since may show up for another %s", d.Silent)
	}
	return "no other flows can be there"
}
