// SPDX-License-Identifier: Apache-2.0

package churn

import (
	"fmt"
	"maps"
	"math/rand/v2"

	"fairlead.io/fairlead/lab/bench"
)

const (
	// absent is the weight of a server that isn't configured.
	absent = -1
	// leastInUse is the number of servers that every service keeps in use.
	leastInUse = 2
	// maxWeight keeps rings small.
	maxWeight = 4
)

// weights of all servers in one service: absent, 0 (drained) or up to maxWeight.
type weights []int

// inUse is the number of servers that get new connections.
func (w weights) inUse() int {
	n := 0
	for _, weight := range w {
		if weight > 0 {
			n++
		}
	}
	return n
}

// changeKind is a kind of change of a server.
type changeKind int

const (
	added changeKind = iota
	removed
	drained
	reweighted // possibly after a drain
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

// randomChange draws a possible change; kinds are equally likely.
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

// report adds the number of changes, by kind.
func (c changeCounts) report(r *bench.Report, suffix string, labels map[string]string) {
	for kind := range changeKinds {
		labels[kind.String()] = fmt.Sprint(c[kind])
	}
	r.Add("changes"+suffix, "changes", bench.Runs{float64(c.total())}, labels)
}
