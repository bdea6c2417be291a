// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// A server doesn't start without TLS where others reach it, nor with bad credentials.
func TestRunRefuses(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "bad")
	writeFile(t, good, "[]")
	writeFile(t, bad, "")
	for _, test := range []struct {
		listen string
		files  Files
		want   string
	}{
		{":0", Files{Tokens: good}, "without a certificate only loopback addresses"},
		{"0.0.0.0:0", Files{Tokens: good}, "without a certificate only loopback addresses"},
		{"127.0.0.1:0", Files{Tokens: bad}, "credentials: " + bad + ": empty"},
		{"127.0.0.1:0", Files{Tokens: bad + "x"}, "no such file"},
		{":0", Files{Tokens: good, Certificate: good, Key: good}, "credentials: "},
		{":0", Files{ClientCA: good}, "no certificate"},
	} {
		err := Run(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, Options{Listen: test.listen, Files: test.files, Rate: 1, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %+v: error %v, want %s", test.listen, test.files, err, test.want)
		}
	}
}
