// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fairlead.io/fairlead/internal/host/file"
)

// Files are the files with credentials. They are read again when they change; if one of them has
// an error, all of them stay as they were. Names may be empty.
type Files struct {
	// Tokens is a YAML list of Token.
	Tokens string
	// Certificate and Key are the server's, in PEM.
	Certificate, Key string
	// ClientCA has the certificates of authorities for clients, in PEM, of which nothing but
	// clients of this server have certificates.
	ClientCA string
}

// TLS reports whether the server has a certificate.
func (f Files) TLS() bool { return f.Certificate != "" }

// credentials are the contents of the files.
type credentials struct {
	tokens tokens
	server tls.Certificate
	// clientCA is nil if clients have no certificates.
	clientCA *x509.CertPool
}

// keyring follows the files.
type keyring struct {
	files Files
	log   *slog.Logger
	now   func() time.Time

	current atomic.Pointer[credentials]
	// refused is true while the files have an error and earlier contents are in use.
	refused atomic.Bool
	// texts are the contents in use, and lastTexts those of the last reading; lastError is the error of
	// the files at the last reading.
	texts     [][]byte
	lastTexts [][]byte
	lastError string
}

// openKeyring reads the files.
func openKeyring(files Files, log *slog.Logger) (*keyring, error) {
	k := &keyring{files: files, log: log, now: time.Now}
	var err error
	if k.texts, err = k.read(); err != nil {
		return nil, err
	}
	c, err := k.parse(k.texts)
	k.current.Store(c)
	return k, err
}

// read returns the contents of the files, in the order of the fields.
func (k *keyring) read() (texts [][]byte, err error) {
	for _, name := range []string{k.files.Tokens, k.files.Certificate, k.files.Key, k.files.ClientCA} {
		var text []byte
		if name != "" {
			if text, err = file.Read(name); err != nil {
				return nil, err
			}
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func (k *keyring) parse(texts [][]byte) (*credentials, error) {
	var c credentials
	var err error
	if k.files.Tokens != "" {
		if c.tokens, err = parseTokens(texts[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", k.files.Tokens, err)
		}
	}
	if k.files.TLS() {
		if c.server, err = tls.X509KeyPair(texts[1], texts[2]); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", k.files.Certificate, k.files.Key, err)
		}
	}
	if k.files.ClientCA != "" {
		c.clientCA = x509.NewCertPool()
		if !c.clientCA.AppendCertsFromPEM(texts[3]) {
			return nil, fmt.Errorf("%s: no certificate", k.files.ClientCA)
		}
	}
	return &c, nil
}

// reload reads the files again, and uses them if they have changed, have no error, and were the same
// at the last call: a file that is being written may be complete for a parser and lack tokens.
func (k *keyring) reload() {
	texts, err := k.read()
	still := slices.EqualFunc(texts, k.lastTexts, bytes.Equal)
	if k.lastTexts = texts; !still && (err == nil || errors.Is(err, file.ErrWriter)) {
		return
	}
	if err == nil && k.lastError == "" && slices.EqualFunc(texts, k.texts, bytes.Equal) {
		return
	}
	var c *credentials
	if err == nil {
		c, err = k.parse(texts)
	}
	if err != nil {
		if err.Error() != k.lastError {
			k.log.Error("credentials not read, the earlier ones stay in use", "error", err)
		}
		k.lastError = err.Error()
		k.refused.Store(true)
		return
	}
	k.texts, k.lastError = texts, ""
	k.current.Store(c)
	k.refused.Store(false)
	k.log.Info("credentials read")
}

// reloadInterval is how often files are compared with the loaded content: renamed files, links of
// Kubernetes volumes and network file systems are all noticed.
const reloadInterval = 2 * time.Second

// follow reloads changed files until ctx ends.
func (k *keyring) follow(ctx context.Context) {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.reload()
		case <-ctx.Done():
			return
		}
	}
}

// tls returns the configuration of the listener.
func (k *keyring) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := k.current.Load()
			config := &tls.Config{
				Certificates: []tls.Certificate{c.server},
				MinVersion:   tls.VersionTLS12,
				NextProtos:   []string{"http/1.1"},
				// A resumed session would have the certificates of the first one.
				SessionTicketsDisabled: true,
			}
			if c.clientCA != nil {
				config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, c.clientCA
			}
			return config, nil
		},
	}
}

// identify returns the client of a request, by its token, or else by its certificate.
func (k *keyring) identify(r *http.Request) (identity, bool) {
	c := k.current.Load()
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if i, known := c.tokens.identify(strings.TrimSpace(token), k.now()); known && strings.EqualFold(scheme, "Bearer") {
			return i, true
		}
		return identity{}, false
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || c.clientCA == nil {
		return identity{}, false
	}
	return c.certified(r.TLS.PeerCertificates, k.now())
}

// Names in the subject of a client's certificate: the common name is for logs, each organization
// is a project, and an organizational unit says that the client may only read, or that it is the node
// of the common name.
const readOnlyUnit, nodeUnit = "read-only", "node"

// certified returns the identity of a certificate. It is verified for each request, so that the end of
// its validity and the removal of its authority count for open connections, too.
func (c *credentials) certified(chain []*x509.Certificate, now time.Time) (identity, bool) {
	others := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		others.AddCert(certificate)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.clientCA, Intermediates: others, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return identity{}, false
	}
	s := chain[0].Subject
	i := identity{name: "certificate " + s.CommonName, projects: s.Organization, readOnly: slices.Contains(s.OrganizationalUnit, readOnlyUnit)}
	if slices.Contains(s.OrganizationalUnit, nodeUnit) {
		i.nodes = []string{s.CommonName}
	}
	return i, true
}
