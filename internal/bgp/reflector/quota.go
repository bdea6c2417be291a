// SPDX-License-Identifier: Apache-2.0

package reflector

import "time"

// quota bounds what strangers can write into the log.
type quota struct {
	left int
	from time.Time
}

// What is said of strangers within a time.
const (
	quotaLines  = 10
	quotaPeriod = 10 * time.Second
)

// take reports whether one more line may be written. Callers hold the
// reflector's lock.
func (q *quota) take(now time.Time) bool {
	if now.Sub(q.from) >= quotaPeriod {
		q.left, q.from = quotaLines, now
	}
	if q.left == 0 {
		return false
	}
	q.left--
	return true
}
