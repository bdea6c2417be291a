// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/internal/alloc"
	"fairlead.io/fairlead/internal/controller/ledger"
)

// Reasons of conditions and Events.
const (
	reasonAllocated       = "Allocated"
	reasonPartlyAllocated = "PartlyAllocated"
	reasonTakenOver       = "TakenOver"
	reasonReleasing       = "Releasing"
	reasonExhausted       = "PoolExhausted"
	reasonNoPool          = "NoPool"
	reasonBadPool         = "BadPool"
	reasonNotInPool       = "AddressNotInPool"
	reasonTaken           = "AddressTaken"
	reasonFamily          = "FamilyMismatch"
	reasonFailed          = "AllocationFailed"
	reasonAccepted        = "Accepted"
	reasonBadAnnotation   = "BadAnnotation"
	reasonBadSpec         = "BadSpec"
)

// maxMessage is the longest message of a condition (metav1.Condition) and, less
// than that, of an Event (events.k8s.io/v1, note).
const maxMessage = 1000

// condition returns one that holds or doesn't.
func condition(kind string, holds bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// releasing says that addresses are being taken out of a status. Its time is always
// that of now, so that writing it makes a new version however often it is written.
func releasing(kind string, leaving []netip.Addr) metav1.Condition {
	c := condition(kind, false, reasonReleasing, "giving back "+list(leaving))
	c.LastTransitionTime = metav1.NewTime(time.Now())
	return c
}

// allocated says what became of a wish, or why it was none.
func allocated(kind string, g ledger.Grant, unfit error) metav1.Condition {
	has := list(g.Addresses)
	var err error
	switch {
	case unfit != nil:
		err = unfit
	case g.Lacking != nil:
		return condition(kind, true, reasonPartlyAllocated, has+"; "+g.Lacking.Error())
	case g.Unmet == nil:
		return condition(kind, true, reasonAllocated, has)
	default:
		err = g.Unmet
	}
	reason := reasonOf(err)
	message := err.Error()
	if has != "" {
		message += "; keeps " + has
	}
	return condition(kind, false, reason, message)
}

// reasonOf returns the reason for which there is no address.
func reasonOf(err error) string {
	var (
		exhausted *alloc.ExhaustedError
		noPool    *alloc.NoPoolError
		badPool   *alloc.PoolError
		notInPool *alloc.NotInPoolError
		taken     *alloc.TakenError
		family    *alloc.FamilyError
		unfit     *unfitError
	)
	switch {
	case errors.As(err, &exhausted):
		return reasonExhausted
	case errors.As(err, &noPool):
		return reasonNoPool
	case errors.As(err, &badPool):
		return reasonBadPool
	case errors.As(err, &notInPool):
		return reasonNotInPool
	case errors.As(err, &taken):
		return reasonTaken
	case errors.As(err, &family):
		return reasonFamily
	case errors.As(err, &unfit):
		return unfit.reason
	}
	return reasonFailed
}

// unfitError is a wish that can't be understood.
type unfitError struct {
	reason string
	err    error
}

func (e *unfitError) Error() string { return e.err.Error() }
func (e *unfitError) Unwrap() error { return e.err }

// set puts a condition among others; the time of one whose status is as it was stays,
// unless it has one of its own.
func set(conditions *[]metav1.Condition, c metav1.Condition) {
	if !c.LastTransitionTime.IsZero() {
		meta.RemoveStatusCondition(conditions, c.Type)
	}
	meta.SetStatusCondition(conditions, c)
}

// says reports whether a condition of the type says the same already.
func says(conditions []metav1.Condition, c metav1.Condition) bool {
	old := meta.FindStatusCondition(conditions, c.Type)
	return old != nil && old.Reason == c.Reason && old.Message == c.Message
}

// list writes addresses with commas between them.
func list(addresses []netip.Addr) string {
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}
