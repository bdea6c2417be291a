// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// policy is what browsers are told: nothing from elsewhere, nothing inline, and
// the page in nobody's frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard lets through what only reads, has no body and, at a loopback address,
// is meant for this machine.
func guard(next http.Handler, local bool) http.Handler {
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
			header.Set("Connection", "close") // what a body holds is not read
			reject(w, http.StatusMethodNotAllowed, "only GET is answered here")
		case r.ContentLength != 0: // -1 is a body of unknown length
			header.Set("Connection", "close")
			reject(w, http.StatusBadRequest, "a request has no body here")
		case local && !isLocalName(r.Host):
			reject(w, http.StatusMisdirectedRequest, "host %q: want an IP address or localhost", r.Host)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLocalName reports whether a Host header is one by which a loopback listener
// is asked. A page from elsewhere whose name has been made to mean 127.0.0.1
// (DNS rebinding) asks by that name; the browser would show it all that it reads.
// A request of HTTP/1.0 names no host, and no browser sends one.
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
