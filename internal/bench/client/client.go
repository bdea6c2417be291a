// SPDX-License-Identifier: Apache-2.0

// Package client is clients of VIPs that notice everything: TCP connections
// which check that every byte comes back from the server that they started with,
// and UDP flows that know which datagrams were answered by whom. The servers are
// those of netlab.Echo.
//
// In the story of DESIGN.md §1 it stands outside, where the clients are;
// measurements of what clients notice share it.
package client
