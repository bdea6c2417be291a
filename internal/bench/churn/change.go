// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"fmt"
	"maps"
	"math/rand/v2"

	"fairlead.io/fairlead/internal/bench"
)

const (
	// absent is the weight of a server that isn't in the configuration.
	absent = -1
	// leastInUse is how many servers every service keeps.
	leastInUse = 2
	// maxWeight keeps rings small enough to be built in a moment.
	maxWeight = 4
)

// weights are those of all servers in one service: absent, 0 (drained) or up to
// maxWeight.
type weights []int

// inUse counts the servers that get new connections.
func (w weights) inUse() int {
	n := 0
	for _, weight := range w {
		if weight > 0 {
			n++
		}
	}
	return n
}

// changeKind is what happens to a server.
type changeKind int

const (
	added changeKind = iota
	removed
	drained
	reweighted // also one that was drained
	changeKinds
)

var changeWords = map[changeKind]string{added: "added", removed: "removed", drained: "drained", reweighted: "reweighted"}

func (k changeKind) String() string { return changeWords[k] }

// change gives one server another weight.
type change struct {
	kind   changeKind
	server int
	weight int
}

// randomChange draws a change that the weights allow: kinds are equally likely
// as far as there are servers for them.
func (w weights) randomChange(random *rand.Rand) change {
	for {
		c := change{kind: changeKind(random.IntN(int(changeKinds))), server: random.IntN(len(w))}
		switch c.kind {
		case removed:
			c.weight = absent
		case drained:
			c.weight = 0
		default:
			c.weight = 1 + random.IntN(maxWeight)
		}
		if w.allow(c) {
			return c
		}
	}
}

// allow reports whether the change is one of its kind, changes something and
// leaves enough servers in use.
func (w weights) allow(c change) bool {
	before := w[c.server]
	if (c.kind == added) != (before == absent) || c.weight == before {
		return false
	}
	return c.weight > 0 || before <= 0 || w.inUse() > leastInUse
}

// changeCounts counts changes by kind.
type changeCounts map[changeKind]int

func (c changeCounts) total() int {
	n := 0
	for count := range maps.Values(c) {
		n += count
	}
	return n
}

// report adds how many changes there were, by kind. The labels say how they came
// about.
func (c changeCounts) report(r *bench.Report, suffix string, labels map[string]string) {
	for kind := range changeKinds {
		labels[kind.String()] = fmt.Sprint(c[kind])
	}
	r.Add("changes"+suffix, "changes", bench.Runs{float64(c.total())}, labels)
}
