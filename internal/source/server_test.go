// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/source"
)

// authority signs certificates for both ends of connections.
type authority struct {
	*testing.T
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{T: t, dir: t.TempDir()}
	a.certificate = &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: name}}
	a.certificate, a.key = a.sign(a.certificate, "ca")
	return a
}

// sign writes the files of a certificate and its key.
func (a *authority) sign(template *x509.Certificate, file string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	certificate, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), signer)
	if err != nil {
		a.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: certificate}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(a.path(file+name), pem.EncodeToMemory(block), 0o600); err != nil {
			a.Fatal(err)
		}
	}
	signed, err := x509.ParseCertificate(certificate)
	if err != nil {
		a.Fatal(err)
	}
	return signed, key
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// issue issues a certificate for an end of a connection.
func (a *authority) issue(file string, usage x509.ExtKeyUsage) {
	a.Helper()
	a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: file}, IPAddresses: []net.IP{{127, 0, 0, 1}}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, file)
}

// A node trusts the authority in its file alone, shows its certificate, and reads the files again.
func TestCredentials(t *testing.T) {
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	ours.issue("server", x509.ExtKeyUsageServerAuth)
	ours.issue("node", x509.ExtKeyUsageClientAuth)
	others.issue("node", x509.ExtKeyUsageClientAuth)
	pair, err := tls.LoadX509KeyPair(ours.path("server.crt"), ours.path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(ours.certificate)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	for name, c := range map[string]struct {
		files source.Server
		works bool
	}{
		"ours":                   {source.Server{CAFile: ours.path("ca.crt"), CertificateFile: ours.path("node.crt"), KeyFile: ours.path("node.key")}, true},
		"another server":         {source.Server{CAFile: others.path("ca.crt"), CertificateFile: ours.path("node.crt"), KeyFile: ours.path("node.key")}, false},
		"another node":           {source.Server{CAFile: ours.path("ca.crt"), CertificateFile: others.path("node.crt"), KeyFile: others.path("node.key")}, false},
		"no certificate":         {source.Server{CAFile: ours.path("ca.crt")}, false},
		"the system authorities": {source.Server{CertificateFile: ours.path("node.crt"), KeyFile: ours.path("node.key")}, false},
	} {
		credentials, err := c.files.Credentials()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: credentials.TLS, DisableKeepAlives: true}}
		response, err := client.Get(server.URL)
		if err != nil {
			if c.works {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if !c.works || err != nil || string(text) != "node" {
			t.Errorf("%s: answered by %q, %v", name, text, err)
		}
	}
	node := source.Server{CertificateFile: ours.path("node.crt"), KeyFile: ours.path("node.key")}
	before, err := node.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	ours.issue("node", x509.ExtKeyUsageClientAuth)
	if after, err := node.Credentials(); err != nil || string(after.TLS.Certificates[0].Certificate[0]) == string(before.TLS.Certificates[0].Certificate[0]) {
		t.Errorf("a replaced certificate isn't read: %v", err)
	}
	node.KeyFile = others.path("node.key")
	if _, err := node.Credentials(); err == nil {
		t.Error("a certificate with another's key is read")
	}
}
