// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/source"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// parseAPIServer parses a section in a file in dir, which has a token and files without one.
func parseAPIServer(t *testing.T, dir, section string) (*config.Config, error) {
	t.Helper()
	for name, text := range map[string]string{"token": "lb1.secret\n", "empty": "", "words": "two words"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "node: {name: lb1, interfaces: [eth0]}\napiServer: " + section + "\n"
	return config.Parse(filepath.Join(dir, "f"), text, dataplanetest.Limits())
}

func TestParseAPIServer(t *testing.T) {
	dir := t.TempDir()
	for section, want := range map[string]source.Server{
		"{urls: ['https://api:9575', 'https://10.0.0.2'], tokenFile: token}": {
			URLs: []string{"https://api:9575", "https://10.0.0.2"}, TokenFile: dir + "/token",
		},
		"{urls: ['http://127.0.0.1:9575/'], tokenFile: " + dir + "/token}": {URLs: []string{"http://127.0.0.1:9575/"}, TokenFile: dir + "/token"},
		"{urls: ['http://[::1]:9575'], tokenFile: token}":                  {URLs: []string{"http://[::1]:9575"}, TokenFile: dir + "/token"},
	} {
		c, err := parseAPIServer(t, dir, section)
		if err != nil {
			t.Error(err)
			continue
		}
		if !reflect.DeepEqual(*c.APIServer, want) || c.Services != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %+v, services %v, warnings %v", section, c.APIServer, c.Services, c.Warnings)
		}
	}
}

func TestParseAPIServerErrors(t *testing.T) {
	dir := t.TempDir()
	const url = `want https://HOST:PORT, or http:// with a loopback address`
	for section, want := range map[string]string{
		"{urls: [], tokenFile: token}":                                  "f:2:19: apiServer.urls: no URL: want at least one",
		"{tokenFile: token}":                                            "f:2:12: apiServer.urls: missing",
		"{urls: ['https://a']}":                                         "f:2:12: apiServer: no credentials: want tokenFile, or certificateFile and keyFile",
		"{urls: ['https://a'], certificateFile: token}":                 "f:2:51: apiServer.certificateFile: want keyFile too",
		"{urls: ['https://a'], keyFile: token}":                         "f:2:43: apiServer.keyFile: only with certificateFile",
		"{urls: ['https://a'], tokenFile: none}":                        "f:2:45: apiServer.tokenFile: open " + dir + "/none: no such file or directory",
		"{urls: ['https://a'], tokenFile: empty}":                       "f:2:45: apiServer.tokenFile: " + dir + "/empty: want one line with a token",
		"{urls: ['https://a'], tokenFile: words}":                       "f:2:45: apiServer.tokenFile: " + dir + "/words: want one line with a token",
		"{urls: ['https://a'], tokenFile: token, caFile: token}":        "f:2:60: apiServer.caFile: " + dir + "/token: no certificate in PEM",
		"{urls: ['https://a'], certificateFile: token, keyFile: token}": "f:2:51: apiServer.certificateFile: " + dir + "/token, " + dir + "/token: tls: failed to find any PEM data in certificate input",
		"{urls: ['http://10.0.0.1:9575'], tokenFile: token}":            `f:2:20: apiServer.urls[0]: bad URL "http://10.0.0.1:9575": ` + url,
		"{urls: ['http://localhost:9575'], tokenFile: token}":           `f:2:20: apiServer.urls[0]: bad URL "http://localhost:9575": ` + url,
		"{urls: ['https://a', 'https://a'], tokenFile: token}":          "f:2:33: apiServer.urls[1]: https://a is given twice",
		"{urls: ['https://a/v1'], tokenFile: token}":                    `f:2:20: apiServer.urls[0]: bad URL "https://a/v1": ` + url,
		"{urls: ['https://me:secret@a'], tokenFile: token}":             `f:2:20: apiServer.urls[0]: bad URL: ` + url,
		"{urls: [a], tokenFile: token}":                                 `f:2:20: apiServer.urls[0]: bad URL "a": ` + url,
		"{urls: ['https://a'], tokenFile: token}\nservices: []":         "f:3:11: services: not with apiServer, which has the services: want one of them",
	} {
		_, err := parseAPIServer(t, dir, section)
		if err == nil || err.Error() != dir+"/"+want {
			t.Errorf("%s:\n%v, want\n%s", section, err, want)
		}
	}
	if _, err := config.ParseKubernetes("f", "apiServer: {}\n"); err == nil || !strings.Contains(err.Error(), "apiServer: not here: with --kubernetes") {
		t.Errorf("with --kubernetes: %v", err)
	}
}

// Everyone may read the file with the secret.
func TestParseAPIServerWarning(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "public"), []byte("lb1.secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := parseAPIServer(t, dir, "{urls: ['https://a'], tokenFile: public}")
	if err != nil || len(c.Warnings) != 1 || c.Warnings[0].Text != dir+"/public: world-readable" {
		t.Errorf("%v, %+v", err, c)
	}
}
