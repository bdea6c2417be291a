// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.io/fairlead/api/v1alpha1"
)

// followed is a store that nodes follow themselves. Others have a cluster, which nodes follow.
type followed interface {
	// Follow calls send with lines until ctx ends, send fails or the store is closed.
	Follow(ctx context.Context, send func(lines []byte) error) error
	// Report keeps the status of a node, ReportStatistics its counters.
	Report(node string, body map[string]any) error
	ReportStatistics(node string, body map[string]any) error
}

// follower is a node that follows the store. It has the names of changed objects but not the
// objects, so that a slow one needs no more memory than a fast one.
type follower struct {
	// queue has the changes to send: the first ones, then others by revision. Only the last change
	// of an object counts, which pending has by the key of the object.
	queue   *list.List
	pending map[string]*list.Element
	// wake has an entry when there is something to send.
	wake chan struct{}
	// first is the revision of the objects that are sent first.
	first  int64
	synced bool
}

// change is the last change of an object.
type change struct {
	key      string
	revision int64
	// first says that the node has never got the object, and has to get it before SYNCED.
	first bool
}

// add adds a change that is later than all others. A first one stays where it is.
func (f *follower) add(c change) {
	e := f.pending[c.key]
	if e == nil {
		f.pending[c.key] = f.queue.PushBack(&c)
		return
	}
	known := e.Value.(*change)
	known.revision = c.revision
	if !known.first {
		f.queue.MoveToBack(e)
	}
}

// next returns the next change that may be sent; nil if there is none.
func (f *follower) next() *change {
	if e := f.queue.Front(); e != nil {
		if c := e.Value.(*change); c.first || f.synced {
			return c
		}
	}
	return nil
}

const (
	// aliveInterval is the longest time without a line.
	aliveInterval = 10 * time.Second
	// sendTimeout is how long a node may take for one batch of lines, before it is cut off.
	sendTimeout = 30 * time.Second
	// batchSize is about the largest number of bytes of a batch.
	batchSize = 256 << 10
)

// Types of lines.
const (
	linePut    = "PUT"
	lineDelete = "DELETE"
	lineSynced = "SYNCED"
	lineAlive  = "ALIVE"
)

// line is a line that nodes get.
type line struct {
	Type string `json:"type"`
	// Object is the load balancer, or the metadata of a deleted one.
	Object any `json:"object,omitempty"`
	// Version is the revision as of which all objects have been sent, and Identity is the file's.
	Version  string `json:"version,omitempty"`
	Identity string `json:"identity,omitempty"`
	// Replaces has nodes serve the objects after another file's, or after newer ones.
	Replaces bool `json:"replaces,omitempty"`
}

// deleted is a load balancer that is deleted.
type deleted struct {
	Metadata struct {
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// followers are the nodes that follow the objects of a file.
type followers struct {
	file *bolt.DB
	// served returns a load balancer as nodes get it. It isn't called with mu held: it takes the store's lock.
	served func(*v1alpha1.LoadBalancer) *v1alpha1.LoadBalancer
	// identity is the file's, which copies have, too; replaces has nodes serve another file's objects,
	// or older ones.
	identity string
	replaces bool
	// ended is closed when followers have to leave.
	ended chan struct{}
	// statuses has the changes since the last call of changed.
	statuses *follower
	// rendering is held while lines for a node are made.
	rendering sync.Mutex

	// mu is held while objects are written, and while followers read them. Writers hold the store's lock, too.
	mu  sync.Mutex
	all map[*follower]bool // with their queues
}

// follow adds a follower, which gets all objects first.
func (s *followers) follow() (*follower, error) {
	f := &follower{queue: list.New(), pending: map[string]*list.Element{}, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.file.View(func(tx *bolt.Tx) error {
		f.first = revisionOf(tx)
		return tx.Bucket(objectsBucket).ForEach(func(key, _ []byte) error {
			f.add(change{key: string(key), first: true})
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	s.all[f] = true
	return f, nil
}

func (s *followers) unfollow(f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, f)
}

// update writes objects, and has all followers send those that were written or deleted, in this order.
func (s *followers) update(write func(*bolt.Tx) ([]change, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes []change
	if err := s.file.Update(func(tx *bolt.Tx) (err error) {
		changes, err = write(tx)
		return err
	}); err != nil {
		return err
	}
	for f := range s.all {
		for _, c := range changes {
			f.add(c)
		}
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// taken is an object that was taken out of the queue: its text, nil if it is deleted.
type taken struct {
	change
	text []byte
}

// take takes the next objects out of the queue, and reports whether all first ones have been taken
// for the first time. All of them are as of one revision, and none is skipped that was changed before.
func (s *followers) take(f *follower) (batch []taken, synced bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.file.View(func(tx *bolt.Tx) error {
		size := 0
		for c := f.next(); c != nil && size < batchSize; c = f.next() {
			text := bytes.Clone(tx.Bucket(objectsBucket).Get([]byte(c.key)))
			f.queue.Remove(f.pending[c.key])
			delete(f.pending, c.key)
			if text == nil && c.first {
				continue // the node doesn't know it
			}
			size += len(text)
			batch = append(batch, taken{*c, text})
		}
		return nil
	})
	synced = !f.synced && f.next() == nil
	f.synced = f.synced || synced
	return batch, synced, err
}

// lines takes a batch of changes and encodes it, for one follower at a time: nodes that connect at once
// take the memory of one, and one processor.
func (s *followers) lines(f *follower) (text []byte, err error) {
	s.rendering.Lock()
	defer s.rendering.Unlock()
	batch, synced, err := s.take(f)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	encoder := json.NewEncoder(&all)
	for _, t := range batch {
		l := line{Type: lineDelete}
		if t.text == nil {
			var d deleted
			d.Metadata.Namespace, d.Metadata.Name, _ = strings.Cut(t.key, "/")
			d.Metadata.ResourceVersion = strconv.FormatInt(t.revision, 10)
			l.Object = d
		} else {
			b := &v1alpha1.LoadBalancer{}
			if err := json.Unmarshal(t.text, b); err != nil {
				return nil, err
			}
			l.Type, l.Object = linePut, s.served(b)
		}
		if err := encoder.Encode(l); err != nil {
			return nil, err
		}
	}
	if synced {
		l := line{Type: lineSynced, Version: strconv.FormatInt(f.first, 10), Identity: s.identity, Replaces: s.replaces}
		if err := encoder.Encode(l); err != nil {
			return nil, err
		}
	}
	return all.Bytes(), nil
}

// changed returns the objects that were written or deleted since the last call, at first all.
func (s *followers) changed() (names []types.NamespacedName, err error) {
	if s.statuses == nil {
		if s.statuses, err = s.follow(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.statuses.pending {
		project, name, _ := strings.Cut(key, "/")
		names = append(names, types.NamespacedName{Namespace: project, Name: name})
	}
	s.statuses.queue.Init()
	clear(s.statuses.pending)
	return names, nil
}

// Follow sends all objects, SYNCED, and changes in their order. Changes of an object between two
// batches are one.
func (s *followers) Follow(ctx context.Context, send func(lines []byte) error) error {
	f, err := s.follow()
	if err != nil {
		return err
	}
	defer s.unfollow(f)
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		text, err := s.lines(f)
		if err != nil {
			return err
		}
		if len(text) == 0 {
			select {
			case <-f.wake:
				continue
			case <-alive.C:
				text = []byte(`{"type":"` + lineAlive + `"}` + "\n")
			case <-s.ended:
				return nil
			case <-ctx.Done():
				return nil
			}
		}
		if err := send(text); err != nil {
			return err
		}
	}
}

// watch answers with lines until the client leaves, is too slow, or has no valid credentials any more.
func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	err := s.followed.Follow(r.Context(), func(lines []byte) error {
		if client, known := s.keys.identify(r); !known || len(client.nodes) == 0 {
			return errors.New("credentials are no longer valid")
		}
		// The server's own limit is for short answers.
		if err := control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(lines); err != nil {
			return err
		}
		return control.Flush()
	})
	if err != nil {
		s.log.Info("watch ended", "address", r.RemoteAddr, "error", err)
	}
}
