// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/report"
)

// statusItem is a load balancer whose status or statistics have changed, or that is deleted.
type statusItem struct {
	Project string `json:"project"`
	Name    string `json:"name"`
	Deleted bool   `json:"deleted,omitempty"`
	// Generation changes with the load balancer as clients write it.
	Generation string `json:"generation,omitempty"`
	// ReadyNodes is how many nodes serve it or could.
	ReadyNodes int              `json:"readyNodes"`
	Status     *balancerStatus  `json:"status,omitempty"`
	Statistics *balancerTraffic `json:"statistics,omitempty"`
}

// statusChanges are the load balancers that have changed since a version.
type statusChanges struct {
	// Version is as of when they are read.
	Version string `json:"version"`
	// Complete says that the version before wasn't known: those that aren't listed, here and in the answers
	// that follow, are deleted.
	Complete bool `json:"complete"`
	// Lease is how many seconds the holder is the only one, from its request on; 0 without a holder.
	Lease int               `json:"lease,omitempty"`
	Items []json.RawMessage `json:"items"`

	size int64 // of the items in bytes
}

const (
	// maxChanges and maxChangesSize are how many items an answer has, and about how many bytes at most.
	maxChanges, maxChangesSize = 500, 1 << 20
	// maxDeleted is how many deleted load balancers are remembered.
	maxDeleted = 4096
)

// board has the current items of all load balancers. Requests fill it, so that it costs nothing while no
// client asks.
type board struct {
	mu sync.Mutex
	// epoch is in all versions, as other servers have other ones.
	epoch   string
	version int64
	entries map[types.NamespacedName]*boardEntry // the namespace is the project
	// due are load balancers that have changed since the board was filled.
	due map[types.NamespacedName]bool
	// filled is when the board was filled, and took how long that took.
	filled time.Time
	took   time.Duration
	// deleted counts deleted entries, at most maxDeleted, of which those up to the version forgotten are gone.
	deleted, maxDeleted int
	forgotten           int64
}

// boardEntry is the item of a load balancer, and when it changed last.
type boardEntry struct {
	version int64
	deleted bool
	labels  labels.Set
	item    json.RawMessage
}

func newBoard() *board {
	return &board{
		epoch: string(uuid.NewUUID()), entries: map[types.NamespacedName]*boardEntry{}, due: map[types.NamespacedName]bool{}, maxDeleted: maxDeleted,
	}
}

// fill brings the items up to date, unless that was done statusInterval ago or later. However many there are, it takes
// a fifth of a processor at most. mu is held.
func (b *board) fill(ctx context.Context, store Store) error {
	began := time.Now()
	if began.Sub(b.filled) < max(statusInterval, 4*b.took) {
		return nil
	}
	written, reported, err := store.Changed(ctx)
	for _, name := range written {
		b.due[name] = true
	}
	if reported {
		for name, e := range b.entries {
			b.due[name] = b.due[name] || !e.deleted
		}
	}
	if err != nil {
		return err
	}
	groups := map[string]*groupReports{}
	for _, name := range slices.SortedFunc(maps.Keys(b.due), compareNames) {
		if err := b.update(ctx, store, name, groups); err != nil {
			return err // the rest is still due
		}
		delete(b.due, name)
	}
	b.filled = time.Now()
	b.took = b.filled.Sub(began)
	return nil
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// update makes the item of a load balancer.
func (b *board) update(ctx context.Context, store Store, name types.NamespacedName, groups map[string]*groupReports) error {
	balancer, err := store.Cached(ctx, name)
	if err != nil {
		return err
	}
	known, item, e := b.entries[name], statusItem{Project: name.Namespace, Name: name.Name}, &boardEntry{deleted: balancer == nil}
	if balancer == nil {
		if known == nil || known.deleted {
			return nil
		}
		item.Deleted, e.labels = true, known.labels
	} else {
		e.labels = balancer.Labels
		r, err := reportsOf(ctx, store, balancer.Status.Group, groups)
		if err != nil {
			return err
		}
		status, statistics := statusOf(balancer, r.nodes), trafficOf(balancer, r.statistics)
		statistics.OldestReport = nil // it changes with other load balancers' counters
		item.Generation, item.ReadyNodes = fmt.Sprintf("%s/%d", balancer.UID, balancer.Generation), len(r.nodes)
		item.Status, item.Statistics = &status, &statistics
	}
	if e.item, err = json.Marshal(item); err != nil {
		return err
	}
	if known != nil && bytes.Equal(known.item, e.item) && labels.Equals(known.labels, e.labels) {
		return nil
	}
	b.version++
	e.version = b.version
	b.entries[name] = e
	b.countDeleted(known, e)
	return nil
}

// countDeleted forgets deleted load balancers when there are too many of them.
func (b *board) countDeleted(before, after *boardEntry) {
	if before != nil && before.deleted {
		b.deleted--
	}
	if after.deleted {
		b.deleted++
	}
	if b.deleted <= b.maxDeleted {
		return
	}
	maps.DeleteFunc(b.entries, func(_ types.NamespacedName, e *boardEntry) bool { return e.deleted })
	b.deleted, b.forgotten = 0, b.version
}

// groupReports are the reports of a group's nodes.
type groupReports struct {
	nodes      []*report.Node
	statistics map[string]*v1alpha1.BalancerNodeStatisticsStatus
}

// reportsOf reads the reports of a group, unless they are in known.
func reportsOf(ctx context.Context, store Store, group string, known map[string]*groupReports) (*groupReports, error) {
	r := known[group]
	if r != nil {
		return r, nil
	}
	r = &groupReports{}
	known[group] = r
	if group == "" {
		return r, nil
	}
	reports, err := store.Reports(ctx, group)
	if err != nil {
		return nil, err
	}
	r.nodes = readNodes(reports)
	r.statistics, err = store.Statistics(ctx, group)
	return r, err
}

// since returns the items of a client that have changed since a version.
func (b *board) since(ctx context.Context, store Store, version string, wants func(project string, set labels.Set) bool) (statusChanges, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.fill(ctx, store); err != nil {
		return statusChanges{}, err
	}
	last, began, complete := b.parse(version)
	var changed []*boardEntry
	for name, e := range b.entries {
		if e.version > last && (!e.deleted || !complete) && wants(name.Namespace, e.labels) {
			changed = append(changed, e)
		}
	}
	slices.SortFunc(changed, func(a, b *boardEntry) int { return cmp.Compare(a.version, b.version) })
	answer := statusChanges{Complete: complete, Items: []json.RawMessage{}}
	last = b.version
	for i, e := range changed {
		if i == maxChanges || answer.size > maxChangesSize {
			last = changed[i-1].version
			break
		}
		answer.Items = append(answer.Items, e.item)
		answer.size += int64(len(e.item))
	}
	answer.Version = fmt.Sprintf("%s.%d.%d", b.epoch, last, max(last, began))
	return answer, nil
}

// parse returns the number of a version, and the board's number at the first of several answers that continue each
// other: earlier deletions don't matter to the client. A version is unknown if it is another server's, or if deleted
// load balancers have been forgotten since.
func (b *board) parse(version string) (number, began int64, unknown bool) {
	parts := strings.Split(version, ".")
	if len(parts) == 3 && parts[0] == b.epoch {
		number, err := strconv.ParseInt(parts[1], 10, 64)
		began, err2 := strconv.ParseInt(parts[2], 10, 64)
		if err == nil && err2 == nil && number <= began && b.forgotten <= began && began <= b.version {
			return number, began, false
		}
	}
	return 0, b.version, true
}

// statuses answers with the load balancers of the client's projects that have changed since a version, once there
// are some, or after the time that the client waits.
func (s *server) statuses(ctx context.Context, c *call) (int, any, error) {
	query := c.request.URL.Query()
	wait, err := numberIn(query, "wait", maxWait, 0)
	if err != nil {
		return 0, nil, err
	}
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return 0, nil, newHTTPError(http.StatusBadRequest, "the query is invalid", fieldError{"labelSelector", err.Error()})
	}
	lease, err := s.hold(ctx, c, query.Get("holder"))
	if err != nil {
		return 0, nil, err
	}
	if wait > 0 && s.waits.take(c.client.name, 1) {
		defer s.waits.take(c.client.name, -1)
	} else {
		wait = 0
	}
	wants := func(project string, set labels.Set) bool { return c.client.may(project) && selector.Matches(set) }
	end := time.Now().Add(time.Duration(wait) * time.Second)
	for {
		answer, err := s.board.since(ctx, s.store, query.Get("since"), wants)
		if err != nil {
			return 0, nil, err
		}
		if answer.Complete || len(answer.Items) > 0 || time.Until(end) <= 0 {
			answer.Lease = lease
			return http.StatusOK, answer, c.hold(2 * answer.size)
		}
		select {
		case <-time.After(min(statusInterval, time.Until(end))):
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
}
