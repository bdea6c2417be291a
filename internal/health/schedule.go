// SPDX-License-Identifier: Apache-2.0

package health

import (
	"container/heap"
	"time"
)

// task is something that is to be done at a time.
type task struct {
	due time.Time
	// do is called with the lock held; a target that it returns is to be probed.
	do func(now time.Time) *target
	// place is the task's index in the schedule, -1 if it is not in it.
	place int
}

func newTask(do func(now time.Time) *target) task { return task{do: do, place: -1} }

// schedule holds tasks in the order of their times, as a binary heap.
type schedule struct{ tasks taskHeap }

// set puts a task into the schedule, or moves it there.
func (s *schedule) set(t *task, due time.Time) {
	t.due = due
	if t.place < 0 {
		heap.Push(&s.tasks, t)
		return
	}
	heap.Fix(&s.tasks, t.place)
}

// drop takes a task out if it is in.
func (s *schedule) drop(t *task) {
	if t.place >= 0 {
		heap.Remove(&s.tasks, t.place)
	}
}

// next is when the first task is due; false if there is none.
func (s *schedule) next() (time.Time, bool) {
	if len(s.tasks) == 0 {
		return time.Time{}, false
	}
	return s.tasks[0].due, true
}

// pop takes out the first task that is due at that time; nil if none is.
func (s *schedule) pop(now time.Time) *task {
	if due, ok := s.next(); !ok || due.After(now) {
		return nil
	}
	return heap.Pop(&s.tasks).(*task)
}

// taskHeap is a container/heap of tasks that know their places.
type taskHeap []*task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.place = len(*h)
	*h = append(*h, t)
}

func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h, t.place = (*h)[:last], -1
	return t
}
