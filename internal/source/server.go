// SPDX-License-Identifier: Apache-2.0

package source

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"

	"fairlead.io/fairlead/internal/host/file"
)

// Server is how a node reaches the API server that it follows. The files are read for each
// connection, so that they can be replaced.
type Server struct {
	// URLs are those of servers with the same objects, which are tried in turn: https, or http with
	// a loopback address.
	URLs []string
	// TokenFile has a bearer token; empty for none.
	TokenFile string
	// CAFile has the certificates of the authorities of the server's certificate, in PEM; empty: the
	// system's.
	CAFile string
	// CertificateFile and KeyFile have the node's client certificate, in PEM; empty for none.
	CertificateFile, KeyFile string
}

// Credentials are the contents of a Server's files.
type Credentials struct {
	// Token is empty for none.
	Token string
	TLS   *tls.Config
}

// Credentials reads the files. Errors name the file and have nothing of its content.
func (s *Server) Credentials() (c Credentials, err error) {
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TokenFile != "" {
		text, err := file.Read(s.TokenFile)
		if err != nil {
			return c, err
		}
		c.Token = strings.TrimSpace(string(text))
		if c.Token == "" || strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return c, fmt.Errorf("%s: want one line with a token", s.TokenFile)
		}
	}
	if s.CAFile != "" {
		text, err := file.Read(s.CAFile)
		if err != nil {
			return c, err
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return c, fmt.Errorf("%s: no certificate in PEM", s.CAFile)
		}
	}
	if s.CertificateFile != "" {
		pair, err := s.certificate()
		if err != nil {
			return c, fmt.Errorf("%s, %s: %w", s.CertificateFile, s.KeyFile, err)
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// certificate reads the node's client certificate.
func (s *Server) certificate() (pair tls.Certificate, err error) {
	certificate, err := file.Read(s.CertificateFile)
	if err != nil {
		return pair, err
	}
	key, err := file.Read(s.KeyFile)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(certificate, key)
}
