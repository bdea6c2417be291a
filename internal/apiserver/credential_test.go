// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/httpd"
)

func TestTokenLine(t *testing.T) {
	want := Token{ID: "a", Projects: []string{"web", "*"}, ReadOnly: true, Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	token, entry, err := NewToken(want)
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseTokens([]byte(entry.Line()))
	if err != nil {
		t.Fatalf("%v in %s", err, entry.Line())
	}
	before := want.Expires.Add(-time.Second)
	if i, known := all.identify(token, before); !known || i.name != "token a" || !slices.Equal(i.projects, want.Projects) || !i.readOnly {
		t.Errorf("%+v", i)
	}
	for _, wrong := range []string{"", "a", "a.", "b" + token[1:], token + "x", token[:len(token)-1], entry.Hash} {
		if _, known := all.identify(wrong, before); known {
			t.Errorf("%q is valid", wrong)
		}
	}
	if _, known := all.identify(token, want.Expires); known {
		t.Error("valid when it has expired")
	}
	if strings.Contains(entry.Line(), token[2:]) || len(token) < 2+43 {
		t.Errorf("%s has the token %s", entry.Line(), token)
	}
}

// YAML reads some IDs as numbers or as nothing.
func TestTokenIDs(t *testing.T) {
	for _, id := range []string{"007", "0x10", "1e3", "null", "true"} {
		token, entry, err := NewToken(Token{ID: id, Projects: []string{"web"}})
		if err != nil {
			t.Fatal(err)
		}
		all, err := parseTokens([]byte(entry.Line()))
		if _, known := all.identify(token, time.Now()); err != nil || !known {
			t.Errorf("%s: known %t, error %v", entry.Line(), known, err)
		}
	}
}

func TestBadTokens(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0", 64)
	good := "- {id: a, hash: " + hash + ", projects: [web]}\n"
	for text, want := range map[string]string{
		"":                                    "empty",
		"\n":                                  "empty",
		"[":                                   "sequence",
		"{}":                                  "sequence",
		"- {id: a, hash: x, projects: [web]}": "[0].hash: ",
		"- {id: a, hash: " + hash + "}":       "[0].projects: ",
		"- {id: A, hash: " + hash + "}":       "[0].id: ",
		good + "- {id: b, hash: " + hash + ", projects: [web, '../x']}": "[1].projects[1]: ",
		good + good: "[1].id: a is there twice",
		"- {id: a, nodes: [n1], projects: [web], hash: " + hash + "}": "[0].nodes: ",
		"- {id: a, nodes: [n1], readOnly: true, hash: " + hash + "}":  "[0].nodes: ",
		"- {id: a, nodes: [n1, N2], hash: " + hash + "}":              "[0].nodes[1]: ",
		good + "- ":                               "[1]: empty",
		good + "- {id: b, project: [web]}":        "project",
		good + "- {id: b, expires: '2030-01-01'}": "[1].expires: ",
		good + "- {id: b, expires: never}":        "[1].expires: ",
	} {
		_, err := parseTokens([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), hash) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
	if all, err := parseTokens([]byte("[]")); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// authority issues certificates.
type authority struct {
	t           *testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	pair := a.issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.certificate, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// issue completes a certificate, the authority's own if that has none yet.
func (a *authority) issue(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// client issues the certificate of a client.
func (a *authority) client(name string, units []string, projects ...string) tls.Certificate {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: projects, OrganizationalUnit: units},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// file writes certificates, and their keys into another file.
func (a *authority) file(path string, pair tls.Certificate) {
	a.t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	writeFile(a.t, path, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	writeFile(a.t, path+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Over TLS clients have certificates. Changed files and the end of validity count at once, for open
// connections, too; bad files change nothing.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	files := Files{
		Tokens: filepath.Join(dir, "tokens"), Certificate: filepath.Join(dir, "server"), Key: filepath.Join(dir, "server.key"), ClientCA: filepath.Join(dir, "ca"),
	}
	servers, clientCA, foreignCA := newAuthority(t), newAuthority(t), newAuthority(t)
	serve := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	servers.file(files.Certificate, servers.issue(serve))
	clientCA.file(files.ClientCA, tls.Certificate{Certificate: [][]byte{clientCA.certificate.Raw}, PrivateKey: clientCA.key})
	token, entry, err := NewToken(Token{ID: "a", Projects: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, files.Tokens, entry.Line())
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	keys, err := openKeyring(files, logger)
	if err != nil {
		t.Fatal(err)
	}
	var later atomic.Int64
	keys.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	store := newEmbedded(t)
	newAPIOf(t, store, 1).must(201, "web", "PUT", base+"/lb", `{"forward":"nat"}`)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	server := httpd.Server{Name: "API", Handler: newServer(store, keys, 1000, slog.New(slog.DiscardHandler)), Connections: 32, TLS: keys.tls(), Log: logger}
	go func() { ended <- server.Serve(t.Context(), listener) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(servers.certificate)
	connect := func(pairs ...tls.Certificate) func(method, token string) int {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: pairs}}
		t.Cleanup(transport.CloseIdleConnections)
		return func(method, token string) int {
			r, err := http.NewRequestWithContext(t.Context(), method, "https://"+listener.Addr().String()+base+"/lb", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			response, err := transport.RoundTrip(r)
			if err != nil {
				return 0
			}
			defer response.Body.Close()
			if _, err := io.Copy(io.Discard, response.Body); err != nil { // else the connection isn't used again
				t.Error(err)
			}
			return response.StatusCode
		}
	}
	check := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: status %d, want %d", what, got, want)
		}
	}
	own := connect(clientCA.client("octavia", nil, "web"))
	check("own project", own("GET", ""), 200)
	check("certificate and token", own("GET", token), 200)
	check("certificate and bad token", own("GET", token+"x"), 401)
	check("all projects", connect(clientCA.client("octavia", nil, "*"))("GET", ""), 200)
	check("another project", connect(clientCA.client("octavia", nil, "other"))("GET", ""), 404)
	check("no project", connect(clientCA.client("octavia", nil))("GET", ""), 404)
	reader := connect(clientCA.client("octavia", []string{readOnlyUnit}, "web"))
	check("reading", reader("GET", ""), 200)
	check("writing for reading only", reader("DELETE", ""), 403)
	check("a node's, whatever its projects", connect(clientCA.client("n1", []string{nodeUnit}, "*"))("GET", ""), 403)
	check("no certificate", connect()("GET", ""), 401)
	check("no certificate, token", connect()("GET", token), 200)
	for what, pair := range map[string]tls.Certificate{
		"another authority": foreignCA.client("octavia", nil, "web"),
		"a server's":        clientCA.issue(&x509.Certificate{Subject: pkix.Name{Organization: []string{"web"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
		"expired":           clientCA.issue(&x509.Certificate{Subject: pkix.Name{Organization: []string{"web"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: time.Now().Add(-time.Minute)}),
	} {
		// Clients don't offer certificates of authorities that the server doesn't list.
		if got := connect(pair)("GET", ""); got != 0 && got != 401 {
			t.Errorf("%s: status %d", what, got)
		}
	}

	reload := func() {
		keys.reload() // changed
		keys.reload() // and unchanged since
	}
	for _, bad := range []struct{ path, text string }{{files.ClientCA, "nonsense"}, {files.Tokens, ""}, {files.Key, "nonsense"}} {
		good, err := os.ReadFile(bad.path)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, bad.path, bad.text)
		reload()
		if !keys.refused.Load() || !strings.Contains(log.String(), filepath.Base(bad.path)) {
			t.Errorf("%s isn't reported:\n%s", bad.path, &log)
		}
		check("certificate", own("GET", ""), 200)
		check("token", own("GET", token), 200)
		check("new connection", connect()("GET", token), 200)
		writeFile(t, bad.path, string(good))
		reload()
		if keys.refused.Load() {
			t.Errorf("%s is still refused", bad.path)
		}
	}

	w, err := os.OpenFile(files.Tokens, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"[", "]", "\n"} {
		if _, err := w.WriteString(part); err != nil {
			t.Fatal(err)
		}
		reload()
		check("a token that a file with a writer lacks", own("GET", token), 200)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	keys.reload()
	check("a token that a file lacks that has just been written", own("GET", token), 200)
	foreignCA.file(files.ClientCA, tls.Certificate{Certificate: [][]byte{foreignCA.certificate.Raw}, PrivateKey: foreignCA.key})
	reload()
	check("a token that was removed", own("GET", token), 401)
	check("an authority that was removed", own("GET", ""), 401)
	foreign := connect(foreignCA.client("octavia", nil, "web"))
	check("the new authority", foreign("GET", ""), 200)
	later.Store(int64(2 * time.Hour))
	check("a certificate that has expired", foreign("GET", ""), 401)
	if strings.Contains(log.String(), "handshake") {
		t.Errorf("strangers fill the log:\n%s", &log)
	}
}
