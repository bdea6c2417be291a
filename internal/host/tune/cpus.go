// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPUs is the largest number of CPUs that Linux supports (CONFIG_NR_CPUS).
const maxCPUs = 8192

// parseList reads an ascending list of CPUs as the kernel prints it, such as "0-8,18-26" or "".
func parseList(text string) (cpus []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, errFirst := strconv.ParseUint(from, 10, 32)
		last, errLast := strconv.ParseUint(to, 10, 32)
		err := errors.Join(errFirst, errLast)
		if err != nil || first > last || last >= maxCPUs || len(cpus) > 0 && int(first) <= cpus[len(cpus)-1] {
			return nil, fmt.Errorf("list of CPUs %q: want ascending ranges of numbers below %d", text, maxCPUs)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// formatList is the inverse of parseList.
func formatList(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); i++ {
		first := cpus[i]
		for i+1 < len(cpus) && cpus[i+1] == cpus[i]+1 {
			i++
		}
		part := strconv.Itoa(first)
		if cpus[i] > first {
			part += "-" + strconv.Itoa(cpus[i])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// parseMask reads a mask as the kernel prints it, hexadecimal groups of 32 CPUs with the highest
// first, such as "f,f803fe00".
func parseMask(text string) (cpus []int, err error) {
	groups := strings.Split(text, ",")
	slices.Reverse(groups)
	for i, group := range groups {
		bits, err := strconv.ParseUint(group, 16, 32)
		if err != nil || i >= maxCPUs/32 {
			return nil, fmt.Errorf("mask of CPUs %q: want up to %d groups of up to 8 hexadecimal digits", text, maxCPUs/32)
		}
		for bit := range 32 {
			if bits>>bit&1 != 0 {
				cpus = append(cpus, 32*i+bit)
			}
		}
	}
	return cpus, nil
}

// formatMask is a mask with as many groups as another one, which covers all CPUs: one without
// leading zeros, or several of eight digits. The kernel reads both.
func formatMask(cpus []int, other string) string {
	groups := make([]uint32, strings.Count(other, ",")+1)
	for _, cpu := range cpus {
		groups[len(groups)-1-cpu/32] |= 1 << (cpu % 32)
	}
	if len(groups) == 1 {
		return strconv.FormatUint(uint64(groups[0]), 16)
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprintf("%08x", groups), "[]"), " ", ",")
}
