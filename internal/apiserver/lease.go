// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// leaseTime is how long a holder is its client's only one after a request.
	leaseTime = 15 * time.Second
	// maxHolder is the largest length of a holder's name.
	maxHolder = 253
)

// hold has a holder be its client's only one, and returns for how many seconds. An empty name holds nothing. The error
// is an httpError while there is another holder.
func (s *server) hold(ctx context.Context, c *call, holder string) (seconds int, err error) {
	switch {
	case holder == "":
		return 0, nil
	case len(holder) > maxHolder:
		return 0, newHTTPError(http.StatusBadRequest, "the query is invalid", fieldError{"holder", fmt.Sprintf("want up to %d bytes", maxHolder)})
	}
	other, err := s.store.Hold(ctx, c.client.name, holder)
	if other > 0 {
		p := newHTTPError(http.StatusConflict, "another holder follows the statuses")
		p.retryAfter = other
		return 0, p
	}
	return int(leaseTime.Seconds()), err
}

// lease has the last holder of a client. Version is its record's, since when this server has seen it.
type lease struct {
	holder, version string
	since           time.Time
}

// left returns for how long a lease is a holder's that isn't the given one.
func (l *lease) left(holder string, now time.Time) time.Duration {
	if l.holder == holder || l.holder == "" {
		return 0
	}
	return max(0, l.since.Add(leaseTime).Sub(now))
}

// holders are the last holders of clients, which a file has, too.
type holders struct {
	file *bolt.DB

	mu sync.Mutex
	// leases are by client.
	leases map[string]lease
}

// read reads the holders in the file. It doesn't have the times of their requests: the last ones may have been
// answered just before.
func (h *holders) read(tx *bolt.Tx) {
	h.leases = map[string]lease{}
	now := time.Now()
	_ = tx.Bucket(leasesBucket).ForEach(func(client, holder []byte) error {
		h.leases[string(client)] = lease{holder: string(holder), since: now}
		return nil
	})
}

// Hold implements Store.
func (h *holders) Hold(_ context.Context, client, holder string) (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, now := h.leases[client], time.Now()
	if left := l.left(holder, now); left > 0 {
		return left, nil
	}
	if l.holder != holder {
		if err := h.file.Update(func(tx *bolt.Tx) error { return tx.Bucket(leasesBucket).Put([]byte(client), []byte(holder)) }); err != nil {
			return 0, err
		}
	}
	h.leases[client] = lease{holder: holder, since: now}
	return 0, nil
}

// Hold implements Store with a Lease object. Another's lease lasts from when this server has seen it, as clocks of
// servers differ.
func (s *kubernetesStore) Hold(ctx context.Context, client, holder string) (time.Duration, error) {
	if s.leaseNamespace == "" {
		return 0, newHTTPError(http.StatusForbidden, "this server has no rights to keep holders: it has no --namespace")
	}
	s.holding.Lock()
	defer s.holding.Unlock()
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.leaseNamespace, Name: leaseName(client)}}
	err := s.objects.Get(ctx, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, object)
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return 0, err
	}
	now := time.Now()
	l := s.leases[client]
	if by := object.Spec.HolderIdentity; by != nil && l.version != object.ResourceVersion {
		l = lease{*by, object.ResourceVersion, now}
		s.leases[client] = l
	}
	if left := l.left(holder, now); left > 0 {
		return left, nil
	}
	object.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: new(int32(leaseTime.Seconds())), RenewTime: new(metav1.NowMicro()),
	}
	if isNew {
		err = s.objects.Create(ctx, object)
	} else {
		err = s.objects.Update(ctx, object)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return leaseTime, nil // another server's client was faster
	}
	if err == nil {
		s.leases[client] = lease{holder, object.ResourceVersion, now}
	}
	return 0, err
}

// leaseName returns the name of a client's Lease: names of clients may have any characters.
func leaseName(client string) string {
	return fmt.Sprintf("fairlead-statuses-%x", sha256.Sum256([]byte(client)))[:40]
}
