// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"math/rand/v2"
	"slices"
)

// standing is what an operator has done to a balancer.
type standing int

const (
	serving standing = iota
	drained          // its agent runs and keeps its sessions
	stopped          // its agent has been ended
)

// action is what is done to one balancer.
type action string

const (
	drain   action = "drain"
	undrain action = "undrain"
	stop    action = "stop"
	start   action = "start"
)

// result is how a balancer stands after the action.
func (a action) result() standing {
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

// fleet is how the balancers stand.
type fleet []standing

// are returns the balancers that stand so.
func (f fleet) are(s standing) []int {
	var found []int
	for n, standing := range f {
		if standing == s {
			found = append(found, n)
		}
	}
	return found
}

// apply returns the fleet after a change.
func (f fleet) apply(c change) fleet {
	next := slices.Clone(f)
	for _, n := range c.balancers {
		next[n] = c.action.result()
	}
	return next
}

// restartPace is how many changes there are for each one in which an agent is
// stopped or started instead. Those take far longer.
const restartPace = 10

// randomChange draws the nth change, counted from one: every restartPace-th is of
// an agent, the others of the number of balancers that serve.
func (f fleet) randomChange(random *rand.Rand, n int) change {
	if n%restartPace == 0 || len(f.are(serving))+len(f.are(drained)) == 1 {
		return f.randomRestart(random)
	}
	return f.randomScale(random)
}

// randomScale draws another number of balancers, from one on each equally likely,
// and those that are drained or undrained, as if somebody had scaled them.
func (f fleet) randomScale(random *rand.Rand) change {
	now, idle := f.are(serving), f.are(drained)
	number := another(random, len(now), len(now)+len(idle))
	if number > len(now) {
		return change{undrain, pick(random, idle, number-len(now))}
	}
	return change{drain, pick(random, now, len(now)-number)}
}

// another draws a number from one to most that isn't the present one, which is
// among them.
func another(random *rand.Rand, present, most int) int {
	number := 1 + random.IntN(most-1)
	if number >= present {
		number++
	}
	return number
}

// randomRestart starts the agent that is stopped or stops one. If only one
// balancer serves, another one is undrained.
func (f fleet) randomRestart(random *rand.Rand) change {
	switch now, gone := f.are(serving), f.are(stopped); {
	case len(gone) > 0:
		return change{start, pick(random, gone, 1)}
	case len(now) > 1:
		return change{stop, pick(random, now, 1)}
	default:
		return change{undrain, pick(random, f.are(drained), 1)}
	}
}

// pick returns count different ones.
func pick(random *rand.Rand, from []int, count int) []int {
	picked := slices.Clone(from)
	random.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	picked = picked[:count]
	slices.Sort(picked)
	return picked
}
