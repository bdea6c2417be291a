// SPDX-License-Identifier: Apache-2.0

package api

import (
	"log/slog"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/source"
)

// FuzzLines checks that with any lines of a server all services are valid and distinct, and that no
// service is left when all objects are deleted.
func FuzzLines(f *testing.F) {
	const balancer = `{"metadata":{"namespace":"web","name":"b1","resourceVersion":"1"},"status":{"address":"10.1.1.1"},"spec":{"forward":"l2dsr",` +
		`"segment":{"type":"vlan","id":300},"firewallMark":0,"listeners":[{"name":"http","port":80,"pool":"p","idleTimeout":"1m"}],` +
		`"pools":[{"name":"p","healthCheck":{"type":"http","interval":"1s"},"members":[{"address":"10.0.2.101","port":80,"mac":"02:00:00:00:00:01"}]}]}}`
	for _, seed := range []string{
		"", "{}", "null\n[]", `{"type":"SYNCED"}`, `{"type":"SYNCED","version":7}`, `{"type":"PUT"}` + "\n" + `{"type":"ALIVE"}`,
		`{"type":"PUT","object":` + balancer + `}` + "\n" + `{"type":"SYNCED","version":"1"}` + "\n" +
			`{"type":"PUT","object":` + strings.Replace(balancer, "b1", "b2", 1) + `}` + "\n" + `{"type":"DELETE","object":` + balancer + `}`,
		`{"type":"SYNCED","version":"1"}` + "\n" + `{"type":"PUT","object":` + strings.Replace(balancer, `"listeners":[`, `"listeners":[null,{"quic":{},"limits":{"newFlows":-1}},`, 1) + `}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Open(Options{
			Node: "lb1", StateDir: t.TempDir(), MaxServices: 3, MaxBackends: 10, Log: slog.New(slog.DiscardHandler),
			Limits: dataplane.Limits{Forwards: []lb.Forward{lb.L2DSR, lb.IPIP}, MaxBackends: 1024},
		})
		if err != nil {
			t.Fatal(err)
		}
		listed := map[source.Object]object{}
		for line := range strings.Lines(text) {
			if listed, err = s.apply("", []byte(line), listed); err != nil {
				break
			}
			s.balancers.vips.Flush()
			names, vips := map[string]bool{}, map[lb.VIP]bool{}
			for _, one := range s.balancers.vips.Services() {
				if found := s.balancers.check(&one); len(found) > 0 || names[one.Name] || vips[one.VIP] {
					t.Fatalf("served is %+v with %v", one, found)
				}
				names[one.Name], vips[one.VIP] = true, true
			}
		}
		s.balancers.replace(nil, "", "")
		s.balancers.vips.Flush()
		if left := s.balancers.vips.Services(); len(left) > 0 || len(s.balancers.objects) > 0 || len(s.balancers.vips.Problems()) > 0 {
			t.Fatalf("left are %+v of %v", left, s.balancers.objects)
		}
	})
}
