// SPDX-License-Identifier: Apache-2.0

// Package packets holds the tests that test/guest runs in a guest kernel: the XDP
// data plane against the kernel's own tunnel and VLAN devices.
//
// Every test builds its lab in network namespaces of the guest. The data plane
// and the servers run in the test's process; packets pass only kernels'
// devices and the balancer.
package packets
