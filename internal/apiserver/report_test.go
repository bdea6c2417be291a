// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
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
