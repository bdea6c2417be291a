// SPDX-License-Identifier: Apache-2.0

package xdp

import "fmt"

// Verdicts of an XDP program (enum xdp_action in linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// verdictName is a verdict's name in a dataplane.Trace.
func verdictName(verdict uint32) string {
	switch verdict {
	case xdpDrop:
		return "drop"
	case xdpPass:
		return "pass"
	case xdpTX:
		return "transmit"
	case xdpRedirect:
		return "redirect"
	default:
		return fmt.Sprintf("verdict %d", verdict)
	}
}
