// SPDX-License-Identifier: Apache-2.0

// Package bench measures what Fairlead claims about itself and reports it in one
// form (DESIGN.md §10 and §11).
//
// In the story of DESIGN.md §1 it stands beside everything: it builds what it
// measures from the same parts as the product and changes none of them. Every
// measurement alternates the sides that it compares within one run, because
// absolute figures of a shared machine mean little; what it proves is a ratio.
// docs/benchmarks.md says how each is measured.
package bench
