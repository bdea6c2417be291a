// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"fairlead.io/fairlead/internal/lb"
)

// tlsConfig returns what a check wants of TLS. Its ServerName is empty where the
// target's address takes its place.
func tlsConfig(check *lb.HealthCheck, protocol string) (*tls.Config, error) {
	c := &tls.Config{
		InsecureSkipVerify: true, // a check verifies only if it says so
		NextProtos:         []string{protocol},
		ServerName:         hostName(check.Host),
	}
	t := check.TLS
	if t == nil {
		return c, nil
	}
	c.InsecureSkipVerify = !t.Verify
	if t.ServerName != "" {
		c.ServerName = t.ServerName
	}
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, errors.New("no certificate in PEM")
		}
	}
	return c, nil
}

// hostName is a host without its port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// handshake makes a connection one of TLS, and closes it if that fails.
func handshake(ctx context.Context, conn net.Conn, config *tls.Config, path Path) (net.Conn, error) {
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config = config.Clone()
		config.ServerName = path.Target.Addr().String()
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(handshakeError(err), conn.Close())
	}
	return secure, nil
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
		return errors.New("certificate is signed by nobody that is trusted")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return errors.New("certificate is not valid at this time")
	case errors.As(err, &record):
		return errors.New("not a TLS server")
	}
	return err
}
