// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"bytes"
	"log/slog"
	"testing"

	"fairlead.io/fairlead/internal/config"
)

// A file without hash seed, or with 0, causes a warning.
func TestSeedWarning(t *testing.T) {
	for text, want := range map[string]bool{"": true, "dataplane: {hashSeed: 0}": true, "dataplane: {hashSeed: 1}": false} {
		conf, err := config.ParseKubernetes("f", text)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if checkSeed(conf, slog.New(slog.NewTextHandler(&out, nil))); (out.Len() > 0) != want {
			t.Errorf("%q: %q", text, out.String())
		}
	}
}

// Filters for pods without forwarding cause a warning.
func TestForwardingWarning(t *testing.T) {
	for text, want := range map[string]bool{"": false, "dataplane: {filterPods: true}": true} {
		conf, err := config.ParseKubernetes("f", text)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		if checkForwarding(conf, nil, log); out.Len() > 0 {
			t.Errorf("%q: %q with forwarding", text, out.String())
		}
		if checkForwarding(conf, []string{"net.ipv4.ip_forward"}, log); (out.Len() > 0) != want {
			t.Errorf("%q: %q", text, out.String())
		}
	}
}
