// SPDX-License-Identifier: Apache-2.0

package httpd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"
)

// pageConnections is how many connections to a page may be open at once.
const pageConnections = 128

// ServePage serves a page, and the data behind it, with security headers and bounds. It answers
// on the listener, which it closes, until ctx ends.
func ServePage(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &Server{
		Name: "status page", Handler: secure(handler, isLoopback(listener.Addr())), Connections: pageConnections, Log: log,
	}
	return server.Serve(ctx, listener)
}

// policy is the page's Content-Security-Policy: nothing from other origins, nothing
// inline, no framing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secure sets security headers and rejects requests that don't only read, that have
// a body or, at a loopback address, that name another host.
func secure(next http.Handler, local bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet:
			header.Set("Allow", http.MethodGet)
			header.Set("Connection", "close") // the body is not read
			http.Error(w, "only GET is answered here", http.StatusMethodNotAllowed)
		case r.ContentLength != 0: // -1 is a body of unknown length
			header.Set("Connection", "close")
			http.Error(w, "a request has no body here", http.StatusBadRequest)
		case local && !isLocalName(r.Host):
			http.Error(w, fmt.Sprintf("host %q: want an IP address or localhost", r.Host), http.StatusMisdirectedRequest)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLocalName reports whether a Host header is valid for a loopback listener. It
// prevents DNS rebinding: a page of another origin whose name resolves to 127.0.0.1
// sends that name. A request of HTTP/1.0 has no host, and browsers don't send one.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// style has the style sheet and the icon of all pages.
//
//go:embed assets
var style embed.FS

const indexFile = "index.html"

// HandleStyle adds the style sheet and the icon of all pages.
func HandleStyle(mux *http.ServeMux) { HandleAssets(mux, style) }

// HandleAssets adds a handler for each file in the folder assets; the index is the page.
func HandleAssets(mux *http.ServeMux, files embed.FS) {
	entries, _ := files.ReadDir("assets") // embedded files can be read
	for _, e := range entries {
		content, _ := files.ReadFile(path.Join("assets", e.Name()))
		pattern := "/assets/" + e.Name()
		if e.Name() == indexFile {
			pattern = "/{$}"
		}
		mux.Handle(pattern, asset(e.Name(), content))
	}
}

// asset serves a file, revalidated by its ETag: another agent version may have
// another page.
func asset(name string, content []byte) http.Handler {
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(content))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType(name))
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// contentType doesn't depend on the host's MIME table, which may lack a type.
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
