// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/test/await"
)

// followed is a Source that runs on a file of its own folder until the test
// ends.
type followed struct {
	t       *testing.T
	path    string
	source  *config.Source[*config.Config]
	log     logBuffer
	applied chan *config.Config
	// refusal is the result of apply.
	mu      sync.Mutex
	refusal error
}

// logBuffer is written by the source and read by the test.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// withServices returns a good file of so many services.
func withServices(n int) string {
	var b strings.Builder
	b.WriteString("node: {name: lb1, interfaces: [eth0]}\nservices:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: s%d, address: 10.1.1.%d, port: 80, forward: l2dsr, backends: []}\n", i, i+1)
	}
	return b.String()
}

// follow runs a source on path, which has one service, and awaits that.
func follow(t *testing.T, path string) *followed {
	t.Helper()
	f := &followed{t: t, path: path, applied: make(chan *config.Config, 100)}
	source, err := config.Open(path, slog.New(slog.NewTextHandler(&f.log, nil)), config.Parser(limits()))
	if err != nil {
		t.Fatal(err)
	}
	f.source = source
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx, f.apply) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	f.awaitServices(1)
	return f
}

func (f *followed) apply(c *config.Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusal == nil {
		f.applied <- c
	}
	return f.refusal
}

func (f *followed) setRefusal(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = err
}

// awaitServices waits for the next configuration that is applied.
func (f *followed) awaitServices(want int) {
	f.t.Helper()
	select {
	case c := <-f.applied:
		if len(c.Services) != want {
			f.t.Fatalf("applied %d services, want %d", len(c.Services), want)
		}
	case <-time.After(await.Patience):
		f.t.Fatalf("nothing applied, want %d services; log:\n%s", want, &f.log)
	}
}

func (f *followed) await(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(await.Patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("timed out waiting for %s; log:\n%s", what, &f.log)
		}
	}
}

func (f *followed) awaitRefusal(text string) {
	f.t.Helper()
	f.await("refusal "+text, func() bool {
		return strings.Contains(f.source.State().Error, text)
	})
}

// rename replaces the file as editors do.
func (f *followed) rename(text string) {
	f.t.Helper()
	write(f.t, f.path+"~", text)
	if err := os.Rename(f.path+"~", f.path); err != nil {
		f.t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start follows a new file of one service.
func start(t *testing.T) *followed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	write(t, path, withServices(1))
	return follow(t, path)
}

func TestSourceDetectsEveryKindOfChange(t *testing.T) {
	f := start(t)
	before := f.source.State()
	write(t, f.path, withServices(2))
	f.awaitServices(2)
	f.rename(withServices(3))
	f.awaitServices(3)
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	f.awaitRefusal("no such file")
	write(t, f.path, withServices(4))
	f.awaitServices(4)
	f.await("settled state", func() bool { return f.source.State().Error == "" })

	after := f.source.State()
	if after.Digest == before.Digest || after.Loaded.Before(before.Loaded) || !after.Refused.IsZero() {
		t.Errorf("state went from %+v to %+v", before, after)
	}
	if n := len(f.source.Config().Services); n != 4 {
		t.Errorf("the running configuration has %d services, want 4", n)
	}
}

// Kubernetes projects a ConfigMap as a link to a link that is replaced.
func TestSourceDetectsSwappedLink(t *testing.T) {
	dir := t.TempDir()
	publish := func(version string, services int) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "fairlead.yaml"), withServices(services))
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("..1", 1)
	path := filepath.Join(dir, "fairlead.yaml")
	if err := os.Symlink(filepath.Join("..data", "fairlead.yaml"), path); err != nil {
		t.Fatal(err)
	}
	f := follow(t, path)
	publish("..2", 2)
	f.awaitServices(2)
}

func TestSourceRefusesBadFileWhole(t *testing.T) {
	f := start(t)
	f.rename(strings.ReplaceAll(withServices(2), "port: 80", "port: 0"))
	f.awaitRefusal("services[1].port")
	f.await("a line for each error", func() bool {
		return strings.Count(f.log.String(), "configuration rejected") == 2
	})
	var all config.Errors
	if err := f.source.Reload(); !errors.As(err, &all) || len(all) != 2 {
		t.Errorf("reload of a bad file: %v, want both errors", err)
	}
	state := f.source.State()
	if state.Refused.IsZero() || len(f.source.Config().Services) != 1 {
		t.Errorf("a bad file changed something: %+v", state)
	}

	f.rename(withServices(1)) // the running configuration: nothing to apply
	f.await("settled state", func() bool { return f.source.State().Error == "" })
	f.rename(withServices(2))
	f.awaitServices(2)
}

func TestSourceRefusesChangesThatNeedRestart(t *testing.T) {
	f := start(t)
	f.rename("dataplane: {xdpMode: generic, filterPods: true, hashSeed: 7}\nobserve: {listen: none}\n" +
		"bgp: {asn: 65021, routerID: 10.0.0.1, peers: [{address: 10.0.0.2, asn: 65000}]}\n" +
		strings.Replace(withServices(2), "name: lb1, interfaces: [eth0]", "name: lb2, interfaces: [eth0, eth1]", 1))
	f.awaitRefusal("restarted")
	var restart *config.RestartError
	if err := f.source.Reload(); !errors.As(err, &restart) {
		t.Fatalf("reload: %v, want a RestartError", err)
	}
	want := "node.name was lb1 and would be lb2; node.interfaces was [eth0] and would be [eth0 eth1]; " +
		"dataplane.xdpMode was auto and would be generic; dataplane.filterPods was false and would be true; dataplane.hashSeed was 0 and would be 7; observe.listen was 127.0.0.1:9571 and would be none; " +
		"bgp was absent and would be asn 65021 with routerID 10.0.0.1"
	if !strings.HasSuffix(restart.Error(), want) {
		t.Errorf("have %q, want it to end with %q", restart, want)
	}
}

func TestSourceRefusesAnotherHook(t *testing.T) {
	f := start(t)
	f.rename("routes: {hook: /bin/sh}\n" + withServices(2))
	f.awaitRefusal("routes was absent and would be hook /bin/sh with timeout 15s")
}

func TestSourceReload(t *testing.T) {
	f := start(t)
	if err := f.source.Reload(); err != nil {
		t.Fatal(err)
	}
	f.awaitServices(1)

	broken := errors.New("store is full")
	f.setRefusal(broken)
	f.rename(withServices(2))
	f.awaitRefusal("store is full")
	if err := f.source.Reload(); !errors.Is(err, broken) || len(f.source.Config().Services) != 1 {
		t.Errorf("reload: %v, want what apply said", err)
	}
	f.setRefusal(nil)
	if err := f.source.Reload(); err != nil {
		t.Errorf("a reload does not try again: %v", err)
	}
	f.awaitServices(2)
}

// A reload reads the files that the configuration names, also if that hasn't changed.
func TestSourceReloadReadsCertificates(t *testing.T) {
	f := start(t)
	ca := func() string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	applied := func() string {
		t.Helper()
		select {
		case c := <-f.applied:
			return c.Services[0].Health.TLS.CA
		case <-time.After(await.Patience):
			t.Fatal("nothing applied")
			return ""
		}
	}
	before, after := ca(), ca()
	path := filepath.Join(filepath.Dir(f.path), "ca.pem")
	write(t, path, before)
	f.rename(strings.Replace(withServices(1), "backends: []", "backends: [], health: {type: https, path: /, tls: {verify: true, ca: ca.pem}}", 1))
	if got := applied(); got != before {
		t.Fatalf("CA %q", got)
	}
	write(t, path, after)
	if err := f.source.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := applied(); got != after {
		t.Error("the reload hasn't read the new CA")
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	if _, err := config.Open(filepath.Join(dir, "none"), log, config.Parser(limits())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := config.Open(dir, log, config.Parser(limits())); err == nil || !strings.HasSuffix(err.Error(), "not a regular file") {
		t.Errorf("folder: %v", err)
	}
	path := filepath.Join(dir, "bad.yaml")
	write(t, path, "x")
	var all config.Errors
	if _, err := config.Open(path, log, config.Parser(limits())); !errors.As(err, &all) {
		t.Errorf("bad file: %v, want Errors", err)
	}
	write(t, path, withServices(1))
	source, err := config.Open(path, log, config.Parser(limits()))
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Reload(); err == nil {
		t.Error("a source that doesn't run has been reloaded")
	}
	broken := errors.New("no")
	if err := source.Run(t.Context(), func(*config.Config) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("run: %v, want what apply said at the first time", err)
	}
}
