// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
)

// FuzzSaved shows that of a damaged file only services are restored that can be served, and
// that they are saved unchanged.
func FuzzSaved(f *testing.F) {
	const service = `{"name":"default/web","address":"10.1.1.1","port":80,"protocol":"tcp","forward":"l2dsr","minHealthy":1,` +
		`"backends":[{"address":"10.0.0.1","port":80,"weight":1}]}`
	for _, seed := range []string{
		"", "null", "{}", `{"version":1,"node":"a","asn":65021,"services":[` + service + `],"peers":[{"Address":"10.0.2.1","BFD":{"Path":2}}]}`,
		`{"version":1,"node":"a","services":[` + service + `,{}, {"health":{"type":"http"},"backends":[{}]}],"policies":[{"Prefixes":["10.0.0.0/8"]}]}`,
		`{"version":1,"node":"a","services":[` + service, `{"version":2,"node":"b"}`,
	} {
		f.Add([]byte(seed))
	}
	config := Config{Node: "a", ASN: 65021, Limits: dataplane.Limits{
		Forwards: []lb.Forward{lb.L2DSR, lb.NAT}, MaxBackends: 1024,
	}}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, stateFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := load(dir, config)
		if err != nil {
			return
		}
		for i := range s.Services {
			if found := append(s.Services[i].Check(), config.Limits.Check(&s.Services[i])...); len(found) > 0 {
				t.Errorf("restored a service with %v", found)
			}
		}
		if err := s.write(dir); err != nil {
			t.Fatal(err)
		}
		again, err := load(dir, config)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(s)
		if got, _ := json.Marshal(again); string(got) != string(want) {
			t.Errorf("saved %s, read %s", want, got)
		}
	})
}
