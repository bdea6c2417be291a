// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/apiserver/schema"
	"fairlead.io/fairlead/internal/spec"
)

// embeddedStore keeps LoadBalancers in a file, without a cluster. It takes the place of a
// Kubernetes API server and the controller: it validates objects, assigns addresses and decides
// which parts are accepted, all in one transaction. Nodes follow it, and report to it.
//
// A project is the namespace of its objects.
type embeddedStore struct {
	file      *bolt.DB
	balancers *schema.Schema
	policy    *policy
	*reports
	*followers
	holders

	// mu is held by writes. Reports, followers and holders have locks of their own; the followers' lock is
	// taken with mu held.
	mu        sync.Mutex
	addresses *addresses
	nodes     map[string]nodeAddresses
	quota     *quota
}

// The file has these buckets. Keys of objects are project/name, values their JSON.
var (
	metaBucket    = []byte("meta")
	objectsBucket = []byte("loadbalancers")
	// retainedBucket has the retentions of addresses.
	retainedBucket = []byte("retained")
	// nodesBucket has the addresses of nodes.
	nodesBucket = []byte("nodes")
	// leasesBucket has the last holders of clients.
	leasesBucket = []byte("leases")
	// formatKey has the format of the file, identityKey its identity, revisionKey the number of writes so
	// far, which is the resourceVersion of the last object that was written.
	formatKey, identityKey, revisionKey = []byte("format"), []byte("identity"), []byte("revision")
)

const (
	// fileFormat is the only format.
	fileFormat = "1"
	// lockTimeout is how long to wait for a server that is about to end.
	lockTimeout = time.Second
	// maxObject is the largest size in bytes of an object that a client writes, about etcd's limit.
	// A new policy may make an object larger, as its status lists the refused parts.
	maxObject = 3 << 19
	// maxRead is how many bytes of objects are read for a list, unless there is only one.
	maxRead = 1 << 20
)

// openEmbeddedStore opens a file, or creates one, and decides about all objects by the policy. The
// store has to be closed.
func openEmbeddedStore(path string, p *policy, kinds kinds) (*embeddedStore, error) {
	file, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: file is locked by another server", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &embeddedStore{
		file: file, balancers: kinds["loadbalancers"], policy: p, reports: newReports(kinds),
		addresses: newAddresses(p), quota: newQuota(p), holders: holders{file: file},
	}
	s.followers = &followers{file: file, served: s.served, ended: make(chan struct{}), all: map[*follower]bool{}}
	err = s.prepare(path)
	if err == nil {
		err = s.decideAll()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return s, nil
}

// prepare creates missing buckets of the file, and has the file survive a power cut under its name.
func (s *embeddedStore) prepare(path string) error {
	err := s.file.Update(func(tx *bolt.Tx) error {
		if first, _ := tx.Cursor().First(); first != nil && tx.Bucket(metaBucket) == nil {
			return errors.New("the file is another program's")
		}
		meta, err := tx.CreateBucketIfNotExists(metaBucket)
		if err != nil {
			return err
		}
		for _, bucket := range [][]byte{objectsBucket, retainedBucket, nodesBucket, leasesBucket} {
			if _, err := tx.CreateBucketIfNotExists(bucket); err != nil {
				return err
			}
		}
		if format := meta.Get(formatKey); format != nil && string(format) != fileFormat {
			return fmt.Errorf("format %q is of another version", format)
		}
		if meta.Get(identityKey) == nil {
			if err := meta.Put(identityKey, []byte(uuid.NewUUID())); err != nil {
				return err
			}
		}
		s.identity = string(meta.Get(identityKey))
		s.holders.read(tx)
		return meta.Put(formatKey, []byte(fileFormat))
	})
	if err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Close closes the file. No method may be called after that.
func (s *embeddedStore) Close() error { return s.file.Close() }

// run has followers leave when ctx ends.
func (s *embeddedStore) run(ctx context.Context) error {
	<-ctx.Done()
	close(s.ended)
	return nil
}

// served returns a load balancer as nodes get it, with a firewall mark of their kernels.
func (s *embeddedStore) served(b *v1alpha1.LoadBalancer) *v1alpha1.LoadBalancer {
	b = s.policy.served(b)
	if b.Spec.FirewallMark == 0 || spec.ServedBy(b) == "" {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Spec.FirewallMark = s.quota.mark(b); b.Spec.FirewallMark == 0 {
		b.Spec.Listeners = nil // they would be scheduled one by one
	}
	return b
}

// setAddress sets the address in a status; an invalid one is none.
func setAddress(b *v1alpha1.LoadBalancer, address netip.Addr) {
	if b.Status.Address = ""; address.IsValid() {
		b.Status.Address = address.String()
	}
}

func (s *embeddedStore) ready() error { return nil }

// balancers is the resource in errors.
var balancers = v1alpha1.GroupVersion().WithResource("loadbalancers").GroupResource()

func keyOf(project, name string) []byte { return []byte(project + "/" + name) }

func typedOf(object *unstructured.Unstructured) (*v1alpha1.LoadBalancer, error) {
	b := &v1alpha1.LoadBalancer{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, b); err != nil {
		return nil, fmt.Errorf("load balancer %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return b, nil
}

// text returns a copy of an object's JSON; nil if there is none.
func (s *embeddedStore) text(project, name string) (text []byte, err error) {
	err = s.file.View(func(tx *bolt.Tx) error {
		text = bytes.Clone(tx.Bucket(objectsBucket).Get(keyOf(project, name)))
		return nil
	})
	return text, err
}

func (s *embeddedStore) Get(_ context.Context, project, name string) ([]byte, error) {
	text, err := s.text(project, name)
	if err == nil && text == nil {
		err = apierrors.NewNotFound(balancers, name)
	}
	return text, err
}

// Cached implements Store.
func (s *embeddedStore) Cached(_ context.Context, name types.NamespacedName) (*v1alpha1.LoadBalancer, error) {
	text, err := s.text(name.Namespace, name.Name)
	if err != nil || text == nil {
		return nil, err
	}
	return decodeStored([]byte(name.String()), text)
}

// Changed implements Store.
func (s *embeddedStore) Changed(context.Context) (names []types.NamespacedName, reported bool, err error) {
	if names, err = s.followers.changed(); err != nil {
		return nil, false, err
	}
	return names, s.reports.changed(), nil
}

// List continues after the name in the token, whatever was written meanwhile. It ends early where
// large objects were read, even if none of them has the labels.
func (s *embeddedStore) List(ctx context.Context, project string, page Page) (*List, error) {
	prefix := keyOf(project, "")
	from := prefix
	if page.Continue != "" {
		name, err := base64.RawURLEncoding.DecodeString(page.Continue)
		if err != nil || !validSubdomain(string(name)) {
			return nil, apierrors.NewBadRequest("the continue token is invalid")
		}
		from = append(keyOf(project, string(name)), 0) // the next key
	}
	list, last := &List{}, []byte(nil)
	return list, s.file.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(objectsBucket).Cursor()
		for key, text := c.Seek(from); bytes.HasPrefix(key, prefix); key, text = c.Next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			var object struct{ Metadata struct{ Labels labels.Set } }
			if !page.Labels.Empty() {
				if err := json.Unmarshal(text, &object); err != nil {
					return err
				}
			}
			matches := page.Labels.Matches(object.Metadata.Labels)
			if matches && int64(len(list.Items)) == page.Limit || last != nil && list.Size+len(text) > maxRead {
				list.Continue = base64.RawURLEncoding.EncodeToString(bytes.TrimPrefix(last, prefix))
				return nil
			}
			if matches {
				list.Items = append(list.Items, bytes.Clone(text))
			}
			list.Size, last = list.Size+len(text), key
		}
		return nil
	})
}
