// SPDX-License-Identifier: Apache-2.0

package config

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

// A change is read after the folder has been quiet for settleTime, so that a file
// written in pieces is read once, but at most maxDelay after the first event: a reload
// takes less than 50 ms.
const (
	settleTime = 5 * time.Millisecond
	maxDelay   = 20 * time.Millisecond
)

// watch detects changes of a file. It watches the folder instead of the file, because
// editors replace files by renaming, and Kubernetes replaces a symbolic link in the
// same folder. Changes in another folder that a link leads to are not detected.
type watch struct {
	path    string
	watcher *fsnotify.Watcher
	// last is the file at the last event, links followed; nil if it didn't exist.
	last os.FileInfo
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

// run calls changed at once, after each change and after the time that changed returns, unless that is 0,
// until ctx ends.
func (w *watch) run(ctx context.Context, log *slog.Logger, changed func() time.Duration) error {
	var first time.Time // time of the first unhandled event; zero if none
	due := time.After(0)
	for {
		concerns := false
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			first, due = time.Time{}, nil
			if wait := changed(); wait > 0 {
				due = time.After(wait)
			}
		case event := <-w.watcher.Events:
			concerns = w.replaced() || event.Name == w.path
			if event.Name == filepath.Dir(w.path) && event.Has(fsnotify.Remove) {
				log.Error("configuration folder removed: changes are detected only on reload", "path", event.Name)
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
			due = time.After(min(settleTime, time.Until(first.Add(maxDelay))))
		}
	}
}

// replaced reports whether the path leads to another file than at the last call.
func (w *watch) replaced() bool {
	was := w.last
	now, err := os.Stat(w.path)
	if err != nil {
		now = nil
	}
	w.last = now
	return (was == nil) != (now == nil) || (was != nil && !os.SameFile(was, now))
}
