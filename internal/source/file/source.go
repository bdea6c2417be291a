// SPDX-License-Identifier: Apache-2.0

package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
)

// configuration is what a file may hold: *Config or *Reflector.
type configuration[C any] interface {
	// checkReload says why the process that runs can't go over to next.
	checkReload(next C) error
	warned() []Warning
	// size is for the log: keys and values.
	size() []any
}

// Source follows one configuration file. Its methods may be called from several
// goroutines.
type Source[C configuration[C]] struct {
	path  string
	parse func(name string, data []byte) (C, error)
	log   *slog.Logger

	// loading is held while the file is read and applied, one reading at a time;
	// it is taken before mu.
	loading sync.Mutex
	// apply is guarded by loading; nil until Run.
	apply func(C) error
	// accepted holds the bytes of the file that runs; guarded by loading.
	accepted []byte

	mu     sync.Mutex
	config C
	state  State
}

// State is what is known of the file.
type State struct {
	// Path is absolute.
	Path string
	// Loaded is when the running configuration was read, Digest the SHA-256 of its
	// bytes in hexadecimal.
	Loaded time.Time
	Digest string
	// Err says why the file as it is now was refused, and Refused when; nil and
	// the zero time if it is what runs.
	Err     error
	Refused time.Time
}

// Open reads a node's file for the first time. Its errors are Load's.
func Open(path string, limits dataplane.Limits, log *slog.Logger) (*Source[*Config], error) {
	return open(path, log, func(name string, data []byte) (*Config, error) { return Parse(name, data, limits) })
}

// OpenKubernetes reads the file of a node of a Kubernetes cluster for the first
// time.
func OpenKubernetes(path string, log *slog.Logger) (*Source[*Config], error) {
	return open(path, log, ParseKubernetes)
}

// OpenReflector reads a reflector's file for the first time.
func OpenReflector(path string, log *slog.Logger) (*Source[*Reflector], error) {
	return open(path, log, ParseReflector)
}

func open[C configuration[C]](path string, log *slog.Logger, parse func(string, []byte) (C, error)) (*Source[C], error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	data, err := readFile(absolute)
	if err != nil {
		return nil, err
	}
	config, err := parse(absolute, data)
	if err != nil {
		return nil, err
	}
	s := &Source[C]{path: absolute, parse: parse, log: log, state: State{Path: absolute}}
	s.accept(config, data)
	return s, nil
}

// Config returns the configuration that runs. It is not to be changed.
func (s *Source[C]) Config() C {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// State returns what is known of the file.
func (s *Source[C]) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Run applies the configuration that Open read, and then each one that the file
// changes to, until ctx ends; it returns nil then. An error of apply means that
// nothing was applied: at the first time Run returns it, later the file is
// refused.
func (s *Source[C]) Run(ctx context.Context, apply func(C) error) error {
	w, err := newWatch(s.path)
	if err != nil {
		return err
	}
	defer w.close()

	if err := s.begin(apply); err != nil {
		return err
	}
	// What changed between Open and the watch was seen by nobody.
	s.follow()
	return w.run(ctx, s.log, s.follow)
}

func (s *Source[C]) begin(apply func(C) error) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	config := s.Config()
	if err := apply(config); err != nil {
		return fmt.Errorf("config %s: %w", s.path, err)
	}
	s.apply = apply
	s.logWarnings(config)
	return nil
}

// follow reads the file after the system told of a change. What is to be said of
// it goes to the log and into the state.
func (s *Source[C]) follow() { _ = s.load(false) }

// Reload reads the file now and applies it if it has changed. An error says why
// the file was refused; what runs goes on running.
func (s *Source[C]) Reload() error { return s.load(true) }

func (s *Source[C]) load(requested bool) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.apply == nil {
		return fmt.Errorf("config %s: not applied for the first time yet", s.path)
	}
	data, err := readFile(s.path)
	if err == nil && bytes.Equal(data, s.accepted) {
		s.settle()
		return nil
	}
	if err == nil {
		err = s.change(data)
	}
	if err != nil {
		s.refuse(err, requested)
	}
	return err
}

// change goes over to a file of other content, or leaves everything as it is.
func (s *Source[C]) change(data []byte) error {
	next, err := s.parse(s.path, data)
	if err != nil {
		return err
	}
	if err := s.Config().checkReload(next); err != nil {
		return fmt.Errorf("config %s: %w", s.path, err)
	}
	if err := s.apply(next); err != nil {
		return fmt.Errorf("config %s: %w", s.path, err)
	}
	s.accept(next, data)
	s.logWarnings(next)
	s.log.Info("configuration applied", append([]any{"path", s.path}, next.size()...)...)
	return nil
}

// accept takes note of the configuration that runs now.
func (s *Source[C]) accept(config C, data []byte) {
	s.accepted = data
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
	s.state = State{Path: s.path, Loaded: time.Now(), Digest: fmt.Sprintf("%x", sha256.Sum256(data))}
}

// settle forgets a refusal after the file has become again what it was.
func (s *Source[C]) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Err, s.state.Refused = nil, time.Time{}
}

// refuse takes note of a file that can't be used, and logs each of its errors:
// who asked for a reload is not always who reads the log. What was said already
// is not repeated for every event in the folder.
func (s *Source[C]) refuse(err error, requested bool) {
	s.mu.Lock()
	known := s.state.Err != nil && s.state.Err.Error() == err.Error()
	s.state.Err, s.state.Refused = err, time.Now()
	s.mu.Unlock()
	if known && !requested {
		return
	}
	each, ok := errors.AsType[Errors](err)
	if !ok {
		s.log.Error("configuration refused", "path", s.path, "error", err)
	}
	for _, e := range each {
		s.log.Error("configuration refused", "path", s.path, "error", e)
	}
}

func (s *Source[C]) logWarnings(config C) {
	for _, w := range config.warned() {
		s.log.Warn("configuration warning", "at", w.Place.String(), "warning", w.Text)
	}
}
