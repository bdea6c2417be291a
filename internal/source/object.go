// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/api/v1alpha1"
)

// Kind is a kind of object, such as "LoadBalancer".
type Kind string

// Object identifies an object of an API server.
type Object struct {
	Kind Kind `json:"kind"`
	// Namespace is empty for cluster-scoped objects.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns for example "Service default/web" or "BGPPeer tor1".
func (o Object) String() string {
	if o.Namespace == "" {
		return string(o.Kind) + " " + o.Name
	}
	return string(o.Kind) + " " + o.Namespace + "/" + o.Name
}

// Compare orders objects by kind, namespace and name.
func (o Object) Compare(p Object) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), strings.Compare(o.Namespace, p.Namespace), strings.Compare(o.Name, p.Name))
}

// NamespaceOf returns the namespace of an object as text ("Service default/web") or of a service
// ("default/web/80", "flb:default/shop/https"); empty for objects and services that are in none.
func NamespaceOf(object string) string {
	_, name, isObject := strings.Cut(object, " ")
	if !isObject {
		name = strings.TrimPrefix(object, "flb:")
	}
	namespace, _, found := strings.Cut(name, "/")
	if !found {
		return ""
	}
	return namespace
}

// SortProblems sorts problems by object and keeps the order of each object's.
func SortProblems(problems []v1alpha1.NodeProblem) {
	slices.SortStableFunc(problems, func(a, b v1alpha1.NodeProblem) int { return strings.Compare(a.Object, b.Object) })
}

// MaxProblems is the number of problems of one object that are shown: each is a line of the log.
const MaxProblems = 32

// ProblemLog logs problems of objects: a limited number of lines about each namespace in a minute.
type ProblemLog struct {
	Log *slog.Logger

	known map[v1alpha1.NodeProblem]bool
	// began is when the minute began, lines the number of its lines by namespace.
	began time.Time
	lines map[string]int
}

// Update logs what has changed since the last call: new problems, and those that are solved.
func (l *ProblemLog) Update(problems []v1alpha1.NodeProblem) {
	now, before := time.Now(), l.known
	l.known = make(map[v1alpha1.NodeProblem]bool, len(problems))
	for _, p := range problems {
		l.known[p] = true
	}
	for p := range l.known {
		if !before[p] && l.take(NamespaceOf(p.Object), now) {
			l.Log.Warn("object not served as specified", "object", p.Object, "problem", p.Message)
		}
	}
	for p := range before {
		if !l.known[p] && l.take(NamespaceOf(p.Object), now) {
			l.Log.Info("problem solved", "object", p.Object, "problem", p.Message)
		}
	}
}

// take reports whether there is a line left for a namespace. After a minute it logs how many lines
// of which namespaces were omitted.
func (l *ProblemLog) take(namespace string, now time.Time) bool {
	if l.lines == nil || now.Sub(l.began) >= time.Minute {
		for name, n := range l.lines {
			if n > MaxProblems {
				l.Log.Warn("lines about objects omitted", "namespace", name, "lines", n-MaxProblems)
			}
		}
		l.began, l.lines = now, map[string]int{}
	}
	l.lines[namespace]++
	return l.lines[namespace] <= MaxProblems
}
