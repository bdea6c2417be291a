// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/source"
)

// seedFile has the last hash seed, in the state folder.
const seedFile = "hash-seed"

// HashSeed returns the hash seed of a Secret in the agents' namespace, and saves it. If that
// can't be read within source.StartTimeout it returns the saved seed of an earlier agent, which the
// kernel uses; without one it waits until ctx ends: with another seed than the other nodes'
// this one would move their flows. Errors contain no seed.
func (s *Source) HashSeed(ctx context.Context, secret string) (uint64, error) {
	path := filepath.Join(s.StateDir, seedFile)
	var saved uint64
	text, err := os.ReadFile(path)
	if err == nil {
		saved, err = parseSeed(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("saved hash seed not usable", "error", err)
	}
	usable := err == nil
	limit := ctx
	if usable {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, source.StartTimeout)
		defer cancel()
	}
	logged := ""
	for failures := 1; ; failures++ {
		seed, err := s.readSeed(limit, secret)
		if err == nil {
			if usable && seed != saved {
				s.Log.Warn("hash seed changed, flows move to other backends", "secret", secret)
			}
			return seed, renameio.WriteFile(path, []byte(strconv.FormatUint(seed, 10)), 0o600)
		}
		if ctx.Err() == nil && limit.Err() == nil && err.Error() != logged {
			logged = err.Error()
			s.Log.Warn("waiting for the hash seed", "secret", secret, "error", err)
		}
		select {
		case <-time.After(source.RetryDelay().Delay(failures)):
		case <-limit.Done():
		}
		switch {
		case ctx.Err() != nil:
			return 0, fmt.Errorf("hash seed: %w", ctx.Err())
		case limit.Err() != nil:
			s.Log.Warn("hash seed not read, using the saved one", "secret", secret, "error", logged)
			return saved, nil
		}
	}
}

// readSeed reads the seed of a Secret.
func (s *Source) readSeed(ctx context.Context, name string) (uint64, error) {
	secret := &corev1.Secret{}
	if err := s.control.core.Get().Namespace(s.Namespace).Resource("secrets").Name(name).Do(ctx).Into(secret); err != nil {
		return 0, err
	}
	return parseSeed(secret.Data[v1alpha1.HashSeedKey])
}

// parseSeed reads a decimal number. The error doesn't repeat the text.
func parseSeed(text []byte) (uint64, error) {
	seed, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	switch {
	case len(text) == 0:
		return 0, errors.New("no seed yet")
	case err != nil:
		return 0, errors.New("bad seed: want a decimal number of 64 bits")
	}
	return seed, nil
}
