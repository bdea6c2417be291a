// SPDX-License-Identifier: Apache-2.0

// Package lb is the vocabulary of Fairlead: services, their virtual addresses
// and their backends.
//
// It stands at the beginning of the story of ARCHITECTURE.md: every source
// turns the outside world into these types, and everything behind it (store,
// reconcile, data plane, observe) speaks of nothing else. The package is pure:
// it imports no kernel, Kubernetes, netlink or eBPF package.
package lb
