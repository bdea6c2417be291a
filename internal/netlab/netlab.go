// SPDX-License-Identifier: Apache-2.0

// Package netlab builds small networks of real routers, servers and clients
// out of network namespaces, for people who try Fairlead, for tests and for
// benchmarks.
//
// It stands beside the story of DESIGN.md §1, not in it: it makes the world in
// which that story is played. A [Topology] is a pure value that says what
// there is; [Labs.Up] turns it into namespaces, veth pairs, bridges, addresses,
// routes and running processes; [Lab.Down] removes every trace. What a lab
// consists of is written down in its directory before it is made, so that a
// later process can remove a lab whose creator was killed.
//
// A lab's wires carry complete frames: checksums are computed by the sender
// and VLAN tags are inside, as XDP programs expect them, and switch ports take
// what XDP programs send (link.go, program.go).
package netlab
