// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/host/file"
	"fairlead.io/fairlead/internal/source"
)

// configuration is *Config or *Reflector.
type configuration[C any] interface {
	// checkReload returns why a running process can't switch to next.
	checkReload(next C) error
	// removes reports whether next lacks services or sessions of this configuration.
	removes(next C) bool
	warnings() []Warning
	// size returns key-value pairs for the log.
	size() []any
}

// Source follows one configuration file. Its methods may be called from several
// goroutines.
type Source[C configuration[C]] struct {
	path  string
	parse func(name, text string) (C, error)
	log   *slog.Logger

	// loading serializes reading and applying the file; it is taken before mu.
	loading sync.Mutex
	// apply is guarded by loading; nil until Run.
	apply func(C) error
	// accepted is the text of the running configuration, pending has a file that waits, and
	// writer is since when the file has a writer; they are guarded by loading.
	accepted string
	pending  pending
	writer   time.Time

	mu     sync.Mutex
	config C
	// state is without the digest, which State computes: the agent applies a large file
	// meanwhile.
	state  source.File
	digest func() string
}

// pending is a file that isn't applied yet, because it may be a part of one that is being written.
type pending struct {
	// text was read at last and after that has been the same; first is when the waiting began.
	text        string
	first, last time.Time
}

const (
	// writerPoll is the time between two looks at a file that has a writer.
	writerPoll = 50 * time.Millisecond
	// A file that removes services is applied when it has been the same for quietTime, at the
	// latest after patience: programs may write a file in parts, and close it in between.
	quietTime = time.Second
	patience  = 10 * time.Second
)

// wait returns how long the text has to stay the same before it is applied.
func (p *pending) wait(text string) time.Duration {
	now := time.Now()
	if p.first.IsZero() {
		p.first = now
	}
	if text != p.text || p.last.IsZero() {
		p.text, p.last = text, now
	}
	return min(quietTime-now.Sub(p.last), patience-now.Sub(p.first))
}

// Open reads a file for the first time and parses it, for example by ParseKubernetes.
func Open[C configuration[C]](path string, log *slog.Logger, parse func(name, text string) (C, error)) (*Source[C], error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	text, err := readClosed(absolute)
	if err != nil {
		return nil, err
	}
	config, err := parse(absolute, text)
	if err != nil {
		return nil, err
	}
	s := &Source[C]{path: absolute, parse: parse, log: log, state: source.File{Path: absolute}}
	s.accept(config, text)
	return s, nil
}

// readClosed reads a file once it has no writer.
func readClosed(path string) (text string, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(writerPoll) {
		if text, err = readFile(path); !errors.Is(err, file.ErrWriter) || time.Now().After(end) {
			return text, err
		}
	}
}

// Config returns the running configuration, which is read-only.
func (s *Source[C]) Config() C {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// State returns the state of the file.
func (s *Source[C]) State() source.File {
	s.mu.Lock()
	state, digest := s.state, s.digest
	s.mu.Unlock()
	state.Digest = digest()
	return state
}

// Run applies the configuration that Open read and then each valid change of the file,
// until ctx ends; then it returns nil. If apply returns an error it has applied
// nothing: Run returns the first such error, later ones reject the file.
func (s *Source[C]) Run(ctx context.Context, apply func(C) error) error {
	w, err := newWatch(s.path)
	if err != nil {
		return err
	}
	defer w.close()

	if err := s.start(apply); err != nil {
		return err
	}
	return w.run(ctx, s.log, s.changed)
}

func (s *Source[C]) start(apply func(C) error) error {
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

// changed reads the file after a notification, and returns the time until it has to be read again;
// zero for the next notification. Errors go to the log and the state.
func (s *Source[C]) changed() time.Duration {
	wait, _ := s.load(false)
	return wait
}

// Reload reads the file now and applies it, also if it hasn't changed: files that it names,
// such as certificates, may have. An error is the reason for rejecting the file; the
// running configuration stays. A file that has a writer is rejected.
func (s *Source[C]) Reload() error {
	_, err := s.load(true)
	return err
}

func (s *Source[C]) load(requested bool) (wait time.Duration, err error) {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.apply == nil {
		return 0, fmt.Errorf("config %s: not applied for the first time yet", s.path)
	}
	text, err := readFile(s.path)
	if err == nil && !requested && text == s.accepted {
		s.pending = pending{}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state.Error, s.state.Refused = "", time.Time{}
		return 0, nil
	}
	if err == nil {
		wait, err = s.applyNew(text, requested)
	}
	if errors.Is(err, file.ErrWriter) {
		return writerPoll, s.leave(err, requested)
	}
	s.writer = time.Time{}
	if wait == 0 {
		s.pending = pending{}
	}
	if err != nil {
		s.reject(err, requested)
	}
	return wait, err
}

// leave leaves a file alone that has a writer. That is an error if it was requested, or lasts.
func (s *Source[C]) leave(err error, requested bool) error {
	if s.writer.IsZero() {
		s.writer = time.Now()
	}
	s.pending.last = time.Time{}
	switch {
	case requested:
		s.log.Error("configuration rejected", "path", s.path, "error", err)
	case time.Since(s.writer) > patience:
		s.reject(err, false)
	}
	return err
}

// applyNew switches to new content, or leaves the running configuration. It returns a time if the
// content isn't applied before that.
func (s *Source[C]) applyNew(text string, requested bool) (wait time.Duration, err error) {
	next, err := s.parse(s.path, text)
	if err != nil {
		return 0, err
	}
	if err := s.Config().checkReload(next); err != nil {
		return 0, fmt.Errorf("config %s: %w", s.path, err)
	}
	if !requested && s.Config().removes(next) {
		if wait := s.pending.wait(text); wait > 0 {
			return wait, nil
		}
	}
	if err := s.apply(next); err != nil {
		return 0, fmt.Errorf("config %s: %w", s.path, err)
	}
	s.accept(next, text)
	s.logWarnings(next)
	s.log.Info("configuration applied", append([]any{"path", s.path}, next.size()...)...)
	return 0, nil
}

// accept records the running configuration.
func (s *Source[C]) accept(config C, text string) {
	s.accepted = text
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
	s.state = source.File{Path: s.path, Loaded: time.Now()}
	s.digest = sync.OnceValue(func() string { return digest(text) })
}

// digest is the SHA-256 of a text in hexadecimal.
func digest(text string) string {
	hash := sha256.New()
	pieces := struct{ io.Reader }{strings.NewReader(text)} // as a strings.Reader it would be copied as a whole
	_, _ = io.Copy(hash, pieces)
	return hex.EncodeToString(hash.Sum(nil))
}

// reject records why the file can't be used, and logs each of its errors, unless they
// are the same as before and this is not a requested reload.
func (s *Source[C]) reject(err error, requested bool) {
	s.mu.Lock()
	known := s.state.Error == err.Error()
	s.state.Error, s.state.Refused = err.Error(), time.Now()
	s.mu.Unlock()
	if known && !requested {
		return
	}
	each, ok := errors.AsType[Errors](err)
	if !ok {
		s.log.Error("configuration rejected", "path", s.path, "error", err)
	}
	for _, e := range each {
		s.log.Error("configuration rejected", "path", s.path, "error", e)
	}
}

func (s *Source[C]) logWarnings(config C) {
	for _, w := range config.warnings() {
		s.log.Warn("configuration warning", "at", w.Place.String(), "warning", w.Text)
	}
}

// RestartError is returned for a file that changes settings that need a restart.
type RestartError struct {
	// Process is "agent" or "reflector".
	Process string
	// Changes has each such setting with its old and new value.
	Changes []string
}

// Error names the settings.
func (e *RestartError) Error() string {
	return "the " + e.Process + " has to be restarted for this: " + strings.Join(e.Changes, "; ")
}

// changes collects changed settings that need a restart.
type changes []string

func (c *changes) compare(name string, was, now any) {
	if a, b := fmt.Sprint(was), fmt.Sprint(now); a != b {
		*c = append(*c, fmt.Sprintf("%s was %s and would be %s", name, a, b))
	}
}

// err returns a RestartError; nil without changes.
func (c changes) err(process string) error {
	if c == nil {
		return nil
	}
	return &RestartError{Process: process, Changes: c}
}

func (c *Config) removes(next *Config) bool {
	_, removed := difference(c.Services, next.Services)
	return len(removed) > 0 || c.BGP != nil && next.BGP != nil && len(next.BGP.Peers) < len(c.BGP.Peers)
}

// checkReload returns a RestartError if the change from c to next needs a restart.
func (c *Config) checkReload(next *Config) error {
	var changes changes
	changes.compare("node.name", c.Node.Name, next.Node.Name)
	changes.compare("node.interfaces", c.Node.Interfaces, next.Node.Interfaces)
	changes.compare("node.tunnelEnds", c.Node.TunnelEnds, next.Node.TunnelEnds)
	changes.compare("node.tunnelPeers", c.Node.TunnelPeers, next.Node.TunnelPeers)
	changes.compare("node.nat.addresses", c.Node.NAT.Addresses, next.Node.NAT.Addresses)
	changes.compare("node.nat.ports", c.Node.NAT.Ports, next.Node.NAT.Ports)
	changes.compare("dataplane.kind", c.Dataplane.Kind, next.Dataplane.Kind)
	changes.compare("dataplane.xdpMode", c.Dataplane.XDPMode, next.Dataplane.XDPMode)
	changes.compare("dataplane.filterPods", c.Dataplane.FilterPods, next.Dataplane.FilterPods)
	changes.compare("dataplane.hashSeed", c.Dataplane.HashSeed, next.Dataplane.HashSeed)
	changes.compare("dataplane.services", c.Dataplane.Services, next.Dataplane.Services)
	changes.compare("dataplane.backends", c.Dataplane.Backends, next.Dataplane.Backends)
	changes.compare("dataplane.flows", c.Dataplane.Flows, next.Dataplane.Flows)
	changes.compare("dataplane.natSessions", c.Dataplane.NATSessions, next.Dataplane.NATSessions)
	changes.compare("observe.listen", c.Observe, next.Observe)
	changes.compare("bgp", c.speaker(), next.speaker())
	changes.compare("routes", c.hook(), next.hook())
	changes.compare("apiServer", c.server(), next.server())
	return changes.err("agent")
}

// speaker returns the identity of the agent's BGP speaker.
func (c *Config) speaker() string {
	if c.BGP == nil {
		return "absent"
	}
	return fmt.Sprintf("asn %d with routerID %s", c.BGP.ASN, c.BGP.RouterID)
}
