// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/wait"
)

// lists are the watched lists. Their methods may be called concurrently, also with the lock of the Source.
type lists struct {
	log *slog.Logger
	// status is of the server with this URL: of the control cluster's, if there are two.
	status *source.Status
	server string
	// wake is signalled when a list has been read.
	wake chan<- struct{}
	// follow starts to watch a list. It doesn't wait for a response.
	follow func(watchedList) (stop context.CancelFunc)

	mu     sync.Mutex
	states map[Object]*listState
}

// listState is the state of a watched list.
type listState struct {
	stop context.CancelFunc
	// listed says that the list has been read once, or isn't needed and can't be read.
	listed bool
	// denied is why the API server rejects the list; empty if it doesn't.
	denied string
}

// set watches these lists and no others, and returns those that are no longer watched.
func (l *lists) set(wanted []watchedList) (ended []Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := make(map[Object]bool, len(wanted))
	for _, f := range wanted {
		list := f.list()
		needed[list] = true
		if l.states[list] == nil {
			l.states[list] = &listState{stop: l.follow(f)}
		}
	}
	for list, one := range l.states {
		if !needed[list] {
			one.stop()
			delete(l.states, list)
			ended = append(ended, list)
		}
	}
	return ended
}

// listed records that a list has been read completely.
func (l *lists) listed(list Object) {
	l.mu.Lock()
	if one := l.states[list]; one != nil {
		one.listed = true
	}
	l.mu.Unlock()
	wait.Signal(l.wake)
}

// synced reports whether all lists have been read once, including lists of referenced Secrets.
func (l *lists) synced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.states {
		if !one.listed {
			return false
		}
	}
	return len(l.states) > 0
}

// refused returns the lists that can't be watched, as problems.
func (l *lists) refused() (problems []v1alpha1.NodeProblem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for list, one := range l.states {
		if one.denied != "" {
			problems = append(problems, v1alpha1.NodeProblem{Object: list.String(), Message: "can't be watched: " + one.denied})
		}
	}
	source.SortProblems(problems)
	return problems
}

// responded records a response of the API server; of the control cluster's, if there are two.
func (l *lists) responded(f watchedList) {
	if !f.apart {
		l.status.Responded(l.server)
	}
}

// note records the result of a request. A list is denied if the API server rejects it, or is away and not the
// one whose reachability is recorded. Permissions rarely change soon: a Secret that can't be read counts as missing.
func (l *lists) note(f watchedList, err error, watched bool) {
	_, rejected := errors.AsType[*apierrors.StatusError](err)
	if err != nil && !rejected && !f.apart {
		if l.status.Failed(err.Error()) {
			l.log.Warn("API server unreachable", "server", l.server, "kind", f.kind, "error", err)
		}
		return
	}
	l.responded(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.states[f.list()]
	if one == nil {
		return // a Secret that no BGPPeer refers to any more
	}
	if f.kind == KindSecret && apierrors.IsForbidden(err) {
		one.listed = true
		wait.Signal(l.wake)
	}
	switch {
	case err != nil && one.denied != err.Error():
		one.denied = err.Error()
		l.log.Warn("list can't be watched", "list", f.list().String(), "error", err)
	case err == nil && watched && one.denied != "":
		one.denied = ""
		l.log.Info("list watched again", "list", f.list().String())
	}
}
