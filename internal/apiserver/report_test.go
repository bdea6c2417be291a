// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// servedBy is a valid report.
func servedBy() value {
	return value{
		"version": "1", "started": "2026-01-02T03:04:05Z", "dataPlane": "xdp", "draining": false,
		"services": value{"total": int64(1), "programmed": int64(1), "failed": int64(0), "panic": int64(0), "drained": int64(0)},
		"backends": value{"total": int64(1), "inUse": int64(1), "unhealthy": int64(0), "drained": int64(0)},
		"routes":   value{"announced": int64(0), "withheld": int64(0), "sessions": int64(0)},
	}
}

// Counters of a node count from its first report of either kind until it reports nothing for some
// minutes: a node without traffic repeats only the report of its status.
func TestStatisticsOfNodes(t *testing.T) {
	kinds, err := loadKinds()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &embeddedStore{reports: newReports(kinds)}
		serve := func() error { return s.Report("n1", servedBy()) }
		count := func(node string, packets any) error {
			return s.ReportStatistics(node, value{
				"reported": "2026-01-02T03:04:05Z", "later": true,
				"listeners": []any{value{"service": "flb:web/lb/http", "packets": packets, "bytes": int64(0), "newFlows": int64(0)}},
			})
		}
		// known returns the packets of nodes, -1 of those that reported none.
		known := func() map[string]int64 {
			all := map[string]int64{}
			reports, err := s.Statistics(t.Context(), defaultGroup)
			if err != nil {
				t.Fatal(err)
			}
			for node, report := range reports {
				all[node] = -1
				if report != nil {
					all[node] = report.Listeners[0].Packets
				}
			}
			return all
		}
		for _, step := range []struct {
			what  string
			do    func() error
			fails bool
			want  map[string]int64
		}{
			{"a node without counters", serve, false, map[string]int64{"n1": -1}},
			{"its counters", func() error { return count("n1", int64(5)) }, false, map[string]int64{"n1": 5}},
			{"counters of another node", func() error { return count("n2", int64(7)) }, false, map[string]int64{"n1": 5, "n2": 7}},
			{"a negative number", func() error { return count("n1", int64(-1)) }, true, map[string]int64{"n1": 5, "n2": 7}},
			{"a text", func() error { return count("n1", "1") }, true, map[string]int64{"n1": 5, "n2": 7}},
			{"new counters", func() error { return count("n1", int64(6)) }, false, map[string]int64{"n1": 6, "n2": 7}},
			{"a node at rest", func() error {
				for range 5 {
					time.Sleep(time.Minute)
					if err := serve(); err != nil {
						return err
					}
				}
				return nil
			}, false, map[string]int64{"n1": 6}},
			{"no node", func() error {
				time.Sleep(reportLifetime)
				return nil
			}, false, map[string]int64{}},
		} {
			if err := step.do(); (err != nil) != step.fails {
				t.Errorf("%s: error %v", step.what, err)
			}
			if got := known(); !maps.Equal(got, step.want) {
				t.Errorf("%s: counters %v, want %v", step.what, got, step.want)
			}
		}
	})
}

// Members at addresses that nodes have reported are refused, unless the policy allows nodes, also by the next
// server. Former members aren't served, and load balancers get no addresses of nodes.
func TestNodeAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	open := func(networks string) *api {
		return newAPIOf(t, openEmbedded(t, path, "addressPools: [{name: public, addresses: [203.0.113.0/29]}]\n"+
			"loadBalancers: {memberNetworks: [10.0.0.0/8], clusterNetworks: ["+networks+"]}\n"), 1)
	}
	const at = `{"forward":"nat","listeners":[{"name":"l","port":80,"pool":"p"}],"pools":[{"name":"p","members":[{"address":"%s","port":22}]}]}`
	const other = `{"forward":"nat","pools":[{"name":"p","members":[{"address":"10.0.0.1","port":22,"monitorAddress":"10.0.0.9"}]}]}`
	a := open("")
	a.must(201, "web", "PUT", base+"/old", fmt.Sprintf(at, "10.0.0.8"))
	report := strings.TrimSuffix(reported, "}") + `,"addresses":["203.0.113.1","10.0.0.9","10.0.0.8"]}`
	a.must(204, "node", "PUT", strings.Replace(nodePath, "{node}", "n1", 1)+"/report", report)
	var versions map[string]int
	for range 2 {
		refused := a.must(422, "web", "PUT", base+"/new", fmt.Sprintf(at, "10.0.0.9"))
		for _, want := range []string{`"field":"pools[0].members[0].address"`, "10.0.0.9 is in the network Node"} {
			if !strings.Contains(refused.body, want) {
				t.Errorf("want %s in %s", want, refused.body)
			}
		}
		if got := a.must(422, "web", "PUT", base+"/new", other).body; !strings.Contains(got, `"field":"pools[0].members[0].monitorAddress"`) {
			t.Errorf("a monitor address: %s", got)
		}
		a.must(422, "web", "PUT", base+"/old/pools/p/members/10.0.0.9:22", `{}`)
		a.must(200, "web", "PUT", base+"/old/pools/p/members/10.0.0.8:22", `{}`)
		if got := a.must(200, "web", "GET", base+"/old/status", "").body; !strings.Contains(got, "10.0.0.8 is in the network Node") {
			t.Errorf("the status is %s", got)
		}
		now := stored(t, a.store.(*embeddedStore), "web")
		if versions != nil && !maps.Equal(now, versions) {
			t.Errorf("another server decides otherwise: versions %v, want %v", now, versions)
		}
		versions = now
		if got := a.must(422, "web", "PUT", base+"/new", `{"forward":"nat","address":"203.0.113.1"}`).body; !strings.Contains(got, "balancer node") {
			t.Errorf("the address of a node: %s", got)
		}
		if err := a.store.(*embeddedStore).Close(); err != nil {
			t.Fatal(err)
		}
		a = open("")
	}
	a.must(201, "web", "PUT", base+"/new", `{"forward":"nat"}`)
	if got := a.must(200, "web", "GET", base+"/new/status", "").body; !strings.Contains(got, `"address":"203.0.113.2"`) {
		t.Errorf("in turn: %s", got)
	}
	a.must(204, "node", "PUT", strings.Replace(nodePath, "{node}", "n1", 1)+"/report", reported)
	a.must(201, "web", "PUT", base+"/former", fmt.Sprintf(at, "10.0.0.9"))
	if got := a.must(200, "web", "GET", base+"/old/status", "").body; strings.Contains(got, "network Node") {
		t.Errorf("no node has the address any more: %s", got)
	}
	a.must(204, "node", "PUT", strings.Replace(nodePath, "{node}", "n1", 1)+"/report", report)
	if err := a.store.(*embeddedStore).Close(); err != nil {
		t.Fatal(err)
	}
	a = open("Node")
	a.must(201, "web", "PUT", base+"/allowed", fmt.Sprintf(at, "10.0.0.9"))
}
