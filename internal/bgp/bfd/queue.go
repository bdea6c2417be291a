// SPDX-License-Identifier: Apache-2.0

package bfd

import "time"

// queue orders sessions by when they wake: a heap for container/heap.
type queue []*member

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].wakes.Before(q[j].wakes) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	m := x.(*member)
	m.place = len(*q)
	*q = append(*q, m)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return m
}

// next is when the first member wakes; false if there is none.
func (q queue) next() (time.Time, bool) {
	if len(q) == 0 {
		return time.Time{}, false
	}
	return q[0].wakes, true
}
