// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"math/rand/v2"
	"slices"
)

// state of a balancer.
type state int

const (
	serving state = iota
	drained       // its agent runs and keeps its sessions
	stopped       // its agent doesn't run
)

// action is an operation on one balancer.
type action string

const (
	drain   action = "drain"
	undrain action = "undrain"
	stop    action = "stop"
	start   action = "start"
)

// result is the balancer's state after the action.
func (a action) result() state {
	switch a {
	case drain:
		return drained
	case stop:
		return stopped
	default:
		return serving
	}
}

// change is one action on some balancers at once, numbered from 0.
type change struct {
	action    action
	balancers []int
}

// fleet holds the states of the balancers by number.
type fleet []state

// in returns the balancers in a state.
func (f fleet) in(wanted state) []int {
	var found []int
	for n, s := range f {
		if s == wanted {
			found = append(found, n)
		}
	}
	return found
}

// after returns the fleet after a change.
func (f fleet) after(c change) fleet {
	next := slices.Clone(f)
	for _, n := range c.balancers {
		next[n] = c.action.result()
	}
	return next
}

// restartInterval is the share of changes in which an agent is stopped or started,
// one in restartInterval: they take far longer than drains.
const restartInterval = 10

// randomChange draws the nth change, counted from one.
func (f fleet) randomChange(random *rand.Rand, n int) change {
	if n%restartInterval == 0 || len(f.in(serving))+len(f.in(drained)) == 1 {
		return f.randomRestart(random)
	}
	return f.randomScale(random)
}

// randomScale draws another number of serving balancers, each equally likely, and
// the balancers that are drained or undrained for it.
func (f fleet) randomScale(random *rand.Rand) change {
	now, idle := f.in(serving), f.in(drained)
	number := 1 + random.IntN(len(now)+len(idle)-1)
	if number >= len(now) {
		number++
	}
	if number > len(now) {
		return change{undrain, pick(random, idle, number-len(now))}
	}
	return change{drain, pick(random, now, len(now)-number)}
}

// randomRestart starts the stopped agent or stops one. If only one balancer serves,
// another one is undrained.
func (f fleet) randomRestart(random *rand.Rand) change {
	switch now, ended := f.in(serving), f.in(stopped); {
	case len(ended) > 0:
		return change{start, pick(random, ended, 1)}
	case len(now) > 1:
		return change{stop, pick(random, now, 1)}
	default:
		return change{undrain, pick(random, f.in(drained), 1)}
	}
}

// pick draws count different elements.
func pick(random *rand.Rand, from []int, count int) []int {
	picked := slices.Clone(from)
	random.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	picked = picked[:count]
	slices.Sort(picked)
	return picked
}
