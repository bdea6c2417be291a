// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority issues the certificates of a cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// pair is a certificate and its key, in PEM.
type pair struct{ certificate, key []byte }

// Certificates are valid since before the test, and for longer than any.
const (
	clockSkew = time.Hour
	validity  = 24 * time.Hour
)

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("kubernetes-ca")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	return &authority{certificate: parsed, key: key}, err
}

// certificate returns the common template of a cluster's certificates. To Kubernetes
// the name is a user's, and organisations are groups.
func certificate(name string, organisations ...string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: organisations},
		NotBefore:    time.Now().Add(-clockSkew),
		NotAfter:     time.Now().Add(validity),
	}
}

// pem is the authority's own certificate.
func (a *authority) pem() []byte { return certificatePEM(a.certificate.Raw) }

// server issues the certificate of a server at these addresses.
func (a *authority) server(addresses ...net.IP) (pair, error) {
	template := certificate("kube-apiserver")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"}
	template.IPAddresses = addresses
	return a.issue(template)
}

// client issues the certificate by which a user of these groups is known.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template := certificate(user, groups...)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return pair{}, fmt.Errorf("certificate of %s: %w", template.Subject.CommonName, err)
	}
	text, err := keyPEM(key)
	return pair{certificate: certificatePEM(der), key: text}, err
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// pki is the folder with the certificates and keys of a control plane's components.
type pki struct{ dir string }

func (p pki) path(name string) string { return filepath.Join(p.dir, name) }

// write makes the folder: the authority's certificate, the API server's as a server
// and as a client of kubelets, and the key that signs service accounts' tokens.
func (p pki) write(a *authority, addresses ...net.IP) error {
	server, err := a.server(addresses...)
	if err != nil {
		return err
	}
	client, err := a.client("kube-apiserver-kubelet-client", adminGroup)
	if err != nil {
		return err
	}
	signer, err := a.issue(certificate("service-accounts"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"ca.crt":        a.pem(),
		"apiserver.crt": server.certificate, "apiserver.key": server.key,
		"kubelet-client.crt": client.certificate, "kubelet-client.key": client.key,
		"sa.key": signer.key,
	} {
		if err := os.WriteFile(p.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
