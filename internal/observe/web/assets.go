// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"mime"
	"net/http"
	"path"
	"time"
)

// The page as it is written: nothing is built, and nothing comes from elsewhere.
//
//go:embed assets
var files embed.FS

const indexFile = "index.html"

// assets returns a handler for each file by its pattern; the index is the page.
func assets() map[string]http.Handler {
	handlers := map[string]http.Handler{}
	entries, _ := files.ReadDir("assets") // what is embedded can be read
	for _, e := range entries {
		content, _ := files.ReadFile(path.Join("assets", e.Name()))
		pattern := "/assets/" + e.Name()
		if e.Name() == indexFile {
			pattern = "/{$}"
		}
		handlers[pattern] = asset(e.Name(), content)
	}
	return handlers
}

// asset answers with a file, or that the client's copy is the same: a new agent
// may bring a new page.
func asset(name string, content []byte) http.Handler {
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(content))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType(name))
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// contentType doesn't ask the machine's own table, which may lack a type.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return mime.TypeByExtension(path.Ext(name))
	}
}
