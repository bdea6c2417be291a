// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/internal/alloc"
)

// Reasons of conditions and Events, in addition to the reasons of alloc.Error.
const (
	reasonAllocated       = "Allocated"
	reasonPartlyAllocated = "PartlyAllocated"
	reasonReleasing       = "Releasing"
	reasonAccepted        = "Accepted"
	reasonBadAnnotation   = "BadAnnotation"
	reasonUnread          = "UnreadAnnotation"
	reasonBadSpec         = "BadSpec"
	reasonFailed          = "AllocationFailed"
	reasonQuotaExceeded   = "QuotaExceeded"
	reasonUnsupported     = "UnsupportedProtocol"
)

// maxMessage is the longest message of a condition (metav1.Condition) and, less
// than that, of an Event (events.k8s.io/v1, note).
const maxMessage = 1000

// condition returns a condition that is true or false.
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

// allocatedCondition returns the result of a request.
func allocatedCondition(kind string, a allocation) metav1.Condition {
	has := list(a.Addresses)
	switch {
	case a.Err == nil && a.Missing == nil && a.Unshared != nil:
		return condition(kind, true, reasonAllocated, has+"; not shared: "+a.Unshared.Error())
	case a.Err == nil && a.Missing == nil:
		return condition(kind, true, reasonAllocated, has)
	case a.Err == nil:
		return condition(kind, true, reasonPartlyAllocated, has+"; "+a.Missing.Error())
	}
	reason, message := reasonFailed, a.Err.Error()
	if failed, ok := errors.AsType[*alloc.Error](a.Err); ok {
		reason = failed.Reason
	}
	if has != "" {
		message += "; keeps " + has
	}
	return condition(kind, false, reason, message)
}

// set sets a condition. Without a time of its own it keeps the old one if the status is
// unchanged.
func set(conditions *[]metav1.Condition, c metav1.Condition) {
	if !c.LastTransitionTime.IsZero() {
		meta.RemoveStatusCondition(conditions, c.Type)
	}
	meta.SetStatusCondition(conditions, c)
}

// list joins addresses with commas.
func list(addresses []netip.Addr) string {
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}
