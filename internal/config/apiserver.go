// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"

	"fairlead.io/fairlead/internal/source"
)

func readAPIServer(v value, s *source.Server) {
	v.readFields(
		required("urls", &s.URLs, nonEmpty("URL", distinct(text, checkServerURL))),
		optional("tokenFile", &s.TokenFile, secretFile),
		optional("caFile", &s.CAFile, fileName),
		optional("certificateFile", &s.CertificateFile, fileName),
		optional("keyFile", &s.KeyFile, secretFile),
	)
	if v.failedAny("tokenFile", "certificateFile", "keyFile") {
		return
	}
	switch {
	case s.CertificateFile != "" && s.KeyFile == "":
		v.at("certificateFile").failf("want keyFile too")
	case s.CertificateFile == "" && s.KeyFile != "":
		v.at("keyFile").failf("only with certificateFile")
	case s.CertificateFile == "" && s.TokenFile == "":
		v.failf("no credentials: want tokenFile, or certificateFile and keyFile")
	}
	for _, part := range []struct {
		field string
		files source.Server
	}{
		{"tokenFile", source.Server{TokenFile: s.TokenFile}},
		{"caFile", source.Server{CAFile: s.CAFile}},
		{"certificateFile", source.Server{CertificateFile: s.CertificateFile, KeyFile: s.KeyFile}},
	} {
		if _, err := part.files.Credentials(); !v.failedAny(part.field) {
			v.at(part.field).check(err)
		}
	}
}

// checkServerURL allows unencrypted connections within the machine only: they have a token.
func checkServerURL(text string) error {
	const want = "want https://HOST:PORT, or http:// with a loopback address"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.User != nil: // the text may have a password
		return errors.New("bad URL: " + want)
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return fmt.Errorf("bad URL %q: %s", text, want)
	case u.Scheme == "https":
		return nil
	}
	if address, err := netip.ParseAddr(u.Hostname()); u.Scheme != "http" || err != nil || !address.IsLoopback() {
		return fmt.Errorf("bad URL %q: %s", text, want)
	}
	return nil
}

// fileName reads the path of a file.
func fileName(v value, to *string) {
	if text(v, to); *to != "" {
		*to = v.resolve(*to)
	}
}

// secretFile reads the path of a file with a secret.
func secretFile(v value, to *string) {
	fileName(v, to)
	if info, err := os.Stat(*to); *to != "" && err == nil && info.Mode().Perm()&0o004 != 0 {
		v.warn(fmt.Sprintf("%s: world-readable", *to))
	}
}

// checkServices requires services, or an API server that has them.
func (c *Config) checkServices(v, services value) {
	switch given := services.node != nil; {
	case given && c.APIServer != nil:
		services.failf("not with apiServer, which has the services: want one of them")
	case !given && c.APIServer == nil && !v.failed[v.path] && !v.failedAny("services", "apiServer"):
		v.fail(position(v.node), v.pathOf("services"), errors.New("missing"))
	}
}

// server returns how services are got.
func (c *Config) server() string {
	if c.APIServer == nil {
		return "absent"
	}
	return fmt.Sprintf("%+v", *c.APIServer)
}
