// SPDX-License-Identifier: Apache-2.0

package saved_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source/saved"
)

// FuzzSaved checks that only valid services that the node can serve are restored from a damaged
// file, and that they are saved unchanged.
func FuzzSaved(f *testing.F) {
	const service = `{"name":"default/web","address":"10.1.1.1","port":80,"protocol":"tcp","forward":"l2dsr","minHealthy":1,` +
		`"backends":[{"address":"10.0.0.1","port":80,"weight":1}]}`
	for _, seed := range []string{
		"", "null", "{}", `{"version":1,"node":"a","asn":65021,"services":[` + service + `],"peers":[{"Address":"10.0.2.1","BFD":{"Path":2}}]}`,
		`{"version":1,"node":"a","services":[` + service + `,{}, {"health":{"type":"http"},"backends":[{}]}],"policies":[{"Prefixes":["10.0.0.0/8"]}]}`,
		`{"version":1,"node":"a","services":[` + service, `{"version":2,"node":"b"}`,
		`{"version":1,"node":"a","services":[` + strings.Replace(service, "l2dsr", "ipip", 1) + `]}`,
	} {
		f.Add([]byte(seed))
	}
	check := func(s *lb.Service) (found []lb.FieldError) {
		if s.Forward != lb.L2DSR {
			found = append(found, lb.FieldError{Path: "forward"})
		}
		return found
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := saved.Load(path, "a", check)
		if err != nil {
			return
		}
		for i := range s.Services {
			if found := s.Services[i].Check(); len(found)+len(check(&s.Services[i])) > 0 {
				t.Errorf("restored a service of mode %s with %v", s.Services[i].Forward, found)
			}
		}
		if err := s.Write(path); err != nil {
			t.Fatal(err)
		}
		again, err := saved.Load(path, "a", check)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(s)
		if got, _ := json.Marshal(again); string(got) != string(want) {
			t.Errorf("saved %s, read %s", want, got)
		}
	})
}
