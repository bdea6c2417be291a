// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
)

// website answers in many ways, as its paths say.
func website() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s?%s host=%s agent=%s probe=%s close=%t", r.Method, r.URL.Path, r.URL.RawQuery, r.Host, r.UserAgent(), r.Header.Get("X-Probe"), r.Close)
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscan(r.PathValue("code"), &code)
		w.Header().Set("Location", "/")
		w.WriteHeader(code)
	})
	mux.HandleFunc("/only/{method}", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != r.PathValue("method") {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		w.Write(bytes.Repeat([]byte("x"), maxBody-3))
		w.Write([]byte("end"))
		w.Write(bytes.Repeat([]byte("y"), 1<<20))
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Write([]byte("ok"))
		panic(http.ErrAbortHandler)
	})
	return mux
}

func web(path string, change func(*lb.HealthCheck)) lb.HealthCheck {
	check := lb.HealthCheck{Type: lb.HealthHTTP, Path: path}
	if change != nil {
		change(&check)
	}
	return check
}

func wantStatus(text string) func(*lb.HealthCheck) {
	return func(h *lb.HealthCheck) {
		if err := h.Status.UnmarshalText([]byte(text)); err != nil {
			panic(err)
		}
	}
}

func method(m lb.HTTPMethod) func(*lb.HealthCheck) {
	return func(h *lb.HealthCheck) { h.Method = m }
}

func wantBody(body string) func(*lb.HealthCheck) {
	return func(h *lb.HealthCheck) { h.Body = body }
}

func TestHTTP(t *testing.T) {
	server := httptest.NewServer(website())
	defer server.Close()
	address := server.Listener.Addr().String()
	expectReasons(t, address, map[string]reasonTest{
		"ok": {web("/", nil), ""},
		"request": {web("/?a=b%20c", func(h *lb.HealthCheck) {
			h.Host, h.Headers = "shop.example.com", map[string]string{"x-probe": "s3cret"}
			h.Body = `^GET /\?a=b%20c host=shop\.example\.com agent=fairlead probe=s3cret close=true$`
		}), ""},
		"HEAD":               {web("/only/HEAD", method(lb.MethodHEAD)), ""},
		"HEAD of much":       {web("/long", method(lb.MethodHEAD)), ""},
		"OPTIONS":            {web("/only/OPTIONS", method(lb.MethodOPTIONS)), ""},
		"other method":       {web("/only/GET", method(lb.MethodHEAD)), "status 405, want 200-399"},
		"host by default":    {web("/", wantBody("host="+address+" ")), ""},
		"other body":         {web("/", wantBody("^nothing")), "body doesn't match"},
		"redirect":           {web("/status/302", nil), ""},
		"redirect unwanted":  {web("/status/302", wantStatus("200-299")), "status 302, want 200-299"},
		"unavailable":        {web("/status/503", nil), "status 503, want 200-399"},
		"unavailable wanted": {web("/status/503", wantStatus("200, 503")), ""},
		"no body":            {web("/status/204", wantBody("^$")), ""},
		"end of 64 KiB":      {web("/long", wantBody("end$")), ""},
		"behind 64 KiB":      {web("/long", wantBody("y")), "body doesn't match"},
		"cut off":            {web("/cut", wantBody("ok")), "connection closed without a whole answer"},
		"slow":               {web("/slow", func(h *lb.HealthCheck) { h.Timeout = 50 * time.Millisecond }), "timed out after 50ms"},
		"tls":                {web("/", func(h *lb.HealthCheck) { h.Type = lb.HealthHTTPS }), "not a TLS server"},
	})
}

func TestHTTPWithoutServer(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"nothing":  {"", "connection closed without a whole answer"},
		"half":     {"HTTP/1.1 200 OK\r\nA:", "connection closed without a whole answer"},
		"nonsense": {"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP answer"},
		"endless":  {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<18), "connection closed without a whole answer"},
	} {
		t.Run(name, func(t *testing.T) {
			listener := listen(t)
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				conn.Read(make([]byte, 4096))
				io.WriteString(conn, test.answer)
			}()
			wantReason(t, web("/", nil), listener.Addr().String(), test.want)
		})
	}
	wantReason(t, web("/", nil), closedPort(t), "connection refused")
}

// A probe of the VIP names it as browsers do.
func TestDefaultHost(t *testing.T) {
	for target, want := range map[string][2]string{
		"10.1.1.1:80":           {"10.1.1.1", "10.1.1.1:80"},
		"10.1.1.1:443":          {"10.1.1.1:443", "10.1.1.1"},
		"[fd00:10:1:1::1]:80":   {"[fd00:10:1:1::1]", "[fd00:10:1:1::1]:80"},
		"[fd00:10:1:1::1]:8443": {"[fd00:10:1:1::1]:8443", "[fd00:10:1:1::1]:8443"},
	} {
		for i, check := range []lb.HealthType{lb.HealthHTTP, lb.HealthHTTPS} {
			p, err := newHTTPProber(&lb.HealthCheck{Type: check, Path: "/"})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.defaultHost(way{health.Path{Target: netip.MustParseAddrPort(target)}}); got != want[i] {
				t.Errorf("%s to %s: host %s, want %s", check, target, got, want[i])
			}
		}
	}
}

func TestHTTPS(t *testing.T) {
	server := httptest.NewUnstartedServer(website())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of probes that don't trust it
	server.StartTLS()
	defer server.Close()
	// The certificate is for example.com, 127.0.0.1 and ::1.
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	https := func(host string, config *lb.HealthTLS) lb.HealthCheck {
		return lb.HealthCheck{Type: lb.HealthHTTPS, Path: "/", Host: host, TLS: config}
	}
	expectReasons(t, server.Listener.Addr().String(), map[string]reasonTest{
		"unverified":        {https("", nil), ""},
		"unverified, named": {https("", &lb.HealthTLS{ServerName: "other.example"}), ""},
		"verified address":  {https("", &lb.HealthTLS{Verify: true, CA: ca}), ""},
		"verified name":     {https("", &lb.HealthTLS{Verify: true, CA: ca, ServerName: "example.com"}), ""},
		"verified host":     {https("example.com:8443", &lb.HealthTLS{Verify: true, CA: ca}), ""},
		"another name":      {https("", &lb.HealthTLS{Verify: true, CA: ca, ServerName: "other.example"}), "certificate is not for other.example"},
		"another host":      {https("other.example", &lb.HealthTLS{Verify: true, CA: ca}), "certificate is not for other.example"},
		"unknown authority": {https("", &lb.HealthTLS{Verify: true}), "certificate is signed by an unknown authority"},
		"bad ca":            {https("", &lb.HealthTLS{Verify: true, CA: "x"}), "no certificate in PEM"},
	})
}
