// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"fairlead.io/fairlead/internal/lb"
)

// tlsConfig returns the TLS configuration of a check. Its ServerName is empty where
// the target's address takes its place.
func tlsConfig(check *lb.HealthCheck, protocol string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(check.Host)
	if err != nil {
		host = check.Host // without a port
	}
	c := &tls.Config{
		InsecureSkipVerify: true, // a check verifies only if it says so
		NextProtos:         []string{protocol},
		ServerName:         host,
	}
	t := check.TLS
	if t == nil {
		return c, nil
	}
	c.InsecureSkipVerify, c.ServerName = !t.Verify, cmp.Or(t.ServerName, c.ServerName)
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, errors.New("no certificate in PEM")
		}
	}
	return c, nil
}

// named has a server verified by its address if it has no name.
func named(config *tls.Config, path way) *tls.Config {
	if config.ServerName != "" || config.InsecureSkipVerify {
		return config
	}
	config = config.Clone()
	config.ServerName = path.Target.Addr().String()
	return config
}

// handshakeError says in a few words why a server is not trusted.
func handshakeError(err error) error {
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &name):
		return fmt.Errorf("certificate is not for %s", name.Host)
	case errors.As(err, &authority):
		return errors.New("certificate is signed by an unknown authority")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return errors.New("certificate is not valid at this time")
	case errors.As(err, &record):
		return errors.New("not a TLS server")
	}
	return err
}
