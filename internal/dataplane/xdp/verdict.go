// SPDX-License-Identifier: Apache-2.0

package xdp

// Verdicts of an XDP program (enum xdp_action in linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)
