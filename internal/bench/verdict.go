// SPDX-License-Identifier: Apache-2.0

package bench

import "strconv"

// Verdict says whether a claim holds.
type Verdict struct {
	// Claim is what is compared, in words.
	Claim string `json:"claim"`
	// Source is where the claim comes from.
	Source string `json:"source"`
	// Target is the bound, for example "<= 1.5".
	Target string  `json:"target"`
	Value  float64 `json:"value"`
	Holds  bool    `json:"holds"`
}

// Target is a bound that a value has to keep.
type Target struct {
	sign  string
	bound float64
}

// AtLeast is the target of values that must not be smaller.
func AtLeast(bound float64) Target { return Target{sign: ">=", bound: bound} }

// AtMost is the target of values that must not be larger.
func AtMost(bound float64) Target { return Target{sign: "<=", bound: bound} }

// String returns for example ">= 0.9".
func (t Target) String() string {
	return t.sign + " " + strconv.FormatFloat(t.bound, 'g', -1, 64)
}

func (t Target) holds(value float64) bool {
	if t.sign == ">=" {
		return value >= t.bound
	}
	return value <= t.bound
}
