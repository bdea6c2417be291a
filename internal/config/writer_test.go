// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/host/file"
	"fairlead.io/fairlead/test/await"
)

// openWriter opens a file as programs do that write in place; whole empties it.
func openWriter(t *testing.T, path string, whole bool) *os.File {
	t.Helper()
	flags := os.O_WRONLY | os.O_APPEND
	if whole {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// writeInParts writes a text in place, in parts with pauses. With reopen the file is closed between
// parts, as by a script that appends.
func writeInParts(t *testing.T, random *rand.Rand, path, text string, reopen bool) {
	t.Helper()
	f := openWriter(t, path, true)
	for rest := text; rest != ""; {
		n := min(len(rest), 1+random.IntN(len(text)))
		if service := strings.Index(rest[n:], "  - name"); service >= 0 && random.IntN(2) == 0 {
			n += service // then the part is a valid file
		}
		if _, err := f.WriteString(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		if reopen {
			must(t, f.Close())
			f = openWriter(t, path, false)
		}
		pause := time.Duration(random.IntN(int(300 * time.Microsecond)))
		if random.IntN(20) == 0 {
			pause *= 100
		}
		time.Sleep(pause) // the program's speed
	}
	must(t, f.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A file that is written in place, at any speed, deletes no service, wherever a part of it ends.
func TestWritesInPlace(t *testing.T) {
	const services, writes = 4000, 1000
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	text := manyServices(services, 2)
	write(t, path, withServices(1))
	f := follow(t, path)
	write(t, path, text)
	f.awaitServices(services)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range writes {
		writeInParts(t, random, path, text, i%20 == 0)
	}
	write(t, path, manyServices(services+1, 2))
	for {
		select {
		case c := <-f.applied:
			if n := len(c.Services); n == services+1 {
				return
			} else if n != services {
				t.Fatalf("applied %d services, want %d (seed %d)", n, services, seed)
			}
		case <-time.After(await.Patience):
			t.Fatalf("nothing applied (seed %d); log:\n%s", seed, &f.log)
		}
	}
}

// While a file has a writer it isn't read, on request either, and it is read when the writer closes it.
func TestFileWithWriter(t *testing.T) {
	f := start(t)
	w := openWriter(t, f.path, true)
	if _, err := w.WriteString(withServices(2)); err != nil {
		t.Fatal(err)
	}
	if err := f.source.Reload(); !errors.Is(err, file.ErrWriter) || !strings.Contains(err.Error(), f.path) {
		t.Errorf("reload: %v, want the file and the reason", err)
	}
	select {
	case c := <-f.applied:
		t.Errorf("applied %d services of a file that is being written", len(c.Services))
	default:
	}
	must(t, w.Close())
	f.awaitServices(2)
	if e := f.source.State().Error; e != "" {
		t.Errorf("the state has the error %q", e)
	}
}

// A file that lacks services is applied when it has been the same for a moment; a reload applies it at once.
func TestFileRemovesServices(t *testing.T) {
	f := start(t)
	f.rename(withServices(3))
	f.awaitServices(3)
	began := time.Now()
	write(t, f.path, withServices(2))
	f.awaitServices(2)
	if after := time.Since(began); after < time.Second {
		t.Errorf("a service was removed after %s", after)
	}
	f.rename(withServices(1))
	must(t, f.source.Reload())
	f.awaitServices(1)
}
