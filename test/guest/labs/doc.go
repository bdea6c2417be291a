// SPDX-License-Identifier: Apache-2.0

// Package labs holds the tests that test/guest runs in guest kernels: agents balance requests of
// curl to nginx, and datagrams, by data planes and devices that a host's kernel may lack (IPVS,
// devices of tunnels and VLANs).
package labs
