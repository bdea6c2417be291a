// SPDX-License-Identifier: Apache-2.0

package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A change is read when the folder has been quiet for a moment, so that a file
// that is written in pieces is read once, but soon enough for a reload within
// 50 ms of the change.
const (
	quiet   = 5 * time.Millisecond
	longest = 20 * time.Millisecond
)

// watch tells when a file may have changed. It watches the folder and not the
// file, because editors replace the file by renaming another one over it, and
// Kubernetes replaces a symbolic link beside it. What changes behind a link to
// another folder is not seen.
type watch struct {
	path    string
	watcher *fsnotify.Watcher
	// seen is the file as it was at the last event, links followed; nil if it was
	// not there.
	seen os.FileInfo
}

func newWatch(path string) (*watch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", filepath.Dir(path), err), watcher.Close())
	}
	w := &watch{path: path, watcher: watcher}
	w.replaced()
	return w, nil
}

func (w *watch) close() { _ = w.watcher.Close() }

// run calls changed after each change until ctx ends.
func (w *watch) run(ctx context.Context, log *slog.Logger, changed func()) error {
	var first time.Time // of the events that have not been answered; zero if none
	var due <-chan time.Time
	for {
		concerns := false
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			first, due = time.Time{}, nil
			changed()
		case event := <-w.watcher.Events:
			concerns = w.concerns(event)
			if event.Name == filepath.Dir(w.path) && event.Has(fsnotify.Remove) {
				log.Error("configuration folder gone: changes are seen only on reload", "path", event.Name)
			}
		case err := <-w.watcher.Errors:
			// Events were lost.
			log.Warn("configuration watch", "path", w.path, "error", err)
			concerns = true
		}
		if concerns {
			if first.IsZero() {
				first = time.Now()
			}
			due = time.After(min(quiet, time.Until(first.Add(longest))))
		}
	}
}

// concerns reports whether an event may be about the file: it bears its name, or
// another file stands now where the name leads.
func (w *watch) concerns(event fsnotify.Event) bool {
	replaced := w.replaced()
	return replaced || event.Name == w.path
}

// replaced reports whether another file is there than at the last call.
func (w *watch) replaced() bool {
	was := w.seen
	now, err := os.Stat(w.path)
	if err != nil {
		now = nil
	}
	w.seen = now
	return (was == nil) != (now == nil) || (was != nil && !os.SameFile(was, now))
}
