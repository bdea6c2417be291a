// SPDX-License-Identifier: Apache-2.0

package vm

import "testing"

// TestGuest is the packets' proof by devices of the kernel, which no program of
// this project has made to understand them.
func TestGuest(t *testing.T) {
	Run(t, "./guest", "veth", "bridge", "ipip", "sit", "ip6_tunnel", "8021q", "fou", "vxlan", "geneve", "sch_ingress", "cls_bpf")
}
