// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"strconv"
)

// human writes a number with three digits and a decimal prefix: 0, 999, 1.23k,
// 45.6M. A rate that is not 0 is never shown as 0.
func human(v float64) string {
	switch {
	case v <= 0:
		return "0"
	case v < 1:
		return "<1"
	}
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for v >= 999.5 && i < len(prefixes)-1 {
		v /= 1000
		i++
	}
	decimals := 0
	switch {
	case i == 0 || v >= 99.95:
	case v >= 9.995:
		decimals = 1
	default:
		decimals = 2
	}
	return strconv.FormatFloat(v, 'f', decimals, 64) + prefixes[i]
}

// counted writes how many there are: "1 flow", "2 flows".
func counted[N int | uint32 | uint64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// bits writes a rate of bytes as one of bits, which is how links are measured.
func bits(bytesPerSecond float64) string { return human(8 * bytesPerSecond) }

// percent writes a share with one decimal.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
