// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// writeSeed writes a random hash seed into the Secret of the agents, unless it has one: all
// nodes need the same, and a new one moves flows. The Secret comes with the installation, so
// that a controller needs no right to create Secrets.
func (o *deps) writeSeed(ctx context.Context) error {
	_ = o.retry(ctx, "write the hash seed", func() error {
		var secret corev1.Secret
		if err := o.live.Get(ctx, client.ObjectKey{Namespace: o.options.Namespace, Name: o.options.HashSeedSecret}, &secret); err != nil {
			return fmt.Errorf("secret %s: %w", o.options.HashSeedSecret, err)
		}
		if len(secret.Data[v1alpha1.HashSeedKey]) > 0 {
			return nil
		}
		base := secret.DeepCopy()
		var seed [8]byte
		rand.Read(seed[:])
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[v1alpha1.HashSeedKey] = strconv.AppendUint(nil, binary.NativeEndian.Uint64(seed[:]), 10)
		return o.Patch(ctx, &secret, onVersion(base)) // fails if another controller has written one
	}) // fails only when ctx ends
	return nil
}
