// SPDX-License-Identifier: Apache-2.0

// Package ecmp measures what chapter 6 of the dissertation measures: whether the
// upstream router's table is right, how soon it follows the balancers, whether
// throughput follows it, and what is lost when a balancer goes, in whichever
// way.
//
// In the story of DESIGN.md §1 it stands outside: it does to balancers what
// operators and accidents do, and believes the router's kernel and the clients.
package ecmp
