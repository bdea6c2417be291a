// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// backlogFile has a line of hexadecimal numbers for each processor; the second is
// of packets that its queue of received packets had no room for
// (net.core.netdev_max_backlog).
const backlogFile = "/proc/net/softnet_stat"

// backlogDrops is how many packets the machine has dropped because its processors
// were too busy, of whichever network. All namespaces share the queues: what else
// runs on the machine may cost a lab its packets.
func backlogDrops() (int, error) {
	text, err := os.ReadFile(backlogFile)
	if err != nil {
		return 0, err
	}
	return sumBacklogDrops(string(text))
}

func sumBacklogDrops(text string) (int, error) {
	total := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("%s: line %q", backlogFile, line)
		}
		drops, err := strconv.ParseUint(fields[1], 16, 32)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", backlogFile, err)
		}
		total += int(drops)
	}
	return total, nil
}
