// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"

	"fairlead.io/fairlead/internal/alloc"
)

// assignments are which group serves whom, as last decided.
type assignments struct {
	mu sync.Mutex
	// groups has every owner that was placed, "" for those that no group serves.
	groups map[alloc.Owner]string
}

func newAssignments() *assignments { return &assignments{groups: map[alloc.Owner]string{}} }

// of returns the group that serves an owner, "" for none, and whether that has been
// decided.
func (a *assignments) of(owner alloc.Owner) (group string, decided bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	group, decided = a.groups[owner]
	return group, decided
}

// replace takes over new decisions and returns whom they concern.
func (a *assignments) replace(groups map[alloc.Owner]string) (concerned []alloc.Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for owner, group := range groups {
		if before, decided := a.groups[owner]; !decided || before != group {
			concerned = append(concerned, owner)
		}
	}
	a.groups = maps.Clone(groups)
	return concerned
}

// recall takes over what an earlier process decided about an owner.
func (a *assignments) recall(owner alloc.Owner, group string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups[owner] = group
}

// forget forgets an owner.
func (a *assignments) forget(owner alloc.Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.groups, owner)
}
