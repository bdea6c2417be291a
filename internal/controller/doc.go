// SPDX-License-Identifier: Apache-2.0

// Package controller decides, for a whole Kubernetes cluster, which Service and
// which LoadBalancer has which address, and which nodes serve it (DESIGN.md §8).
//
// It stands before the sources in the story of DESIGN.md §1: it reads Services,
// nodes and the kinds of api/v1alpha1 and writes statuses, from which the agents'
// Kubernetes source learns what to serve. Packages alloc and alloc/placement decide,
// without knowing Kubernetes; package ledger keeps the book of addresses; this
// package asks them and publishes the answers, one reconciler a kind.
//
// No address is ever in two statuses. One process at a time writes, the holder of a
// Lease, and its writes obey five rules, whatever fails or stalls in between:
//
//  1. A write is made on the version of the object on which it was decided; the API
//     server refuses it on any other (metadata.resourceVersion).
//  2. A write adds an address only to a status that has none of the family. To
//     change an address is two writes: one takes it away, another adds the new one.
//  3. An address that an owner loses is nobody's until a later version of the
//     owner's status without it was written, or the owner was asked for at the API
//     server itself, not in the cache, and found gone (package ledger).
//  4. A write that adds addresses is made only if the Lease was renewed not long ago,
//     seen from after the object was read (tenure).
//  5. Who begins to write lists all objects at the API server itself. To those whose
//     status has room for an address a new version is written before any is given away
//     (takeOver): what an earlier process, stalled until now, may yet write is
//     refused by rule 1 then; and it can't have read a version newer than that, by rule 4.
package controller
