// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.io/fairlead/api/v1alpha1"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	dataplanetest "fairlead.io/fairlead/test/dataplane"
)

// exact compares addresses by value.
var exact = cmpopts.EquateComparable(netip.Addr{})

func (a *testAgent) status() observe.Status {
	a.t.Helper()
	return decode[observe.Status](a.client().Status(a.t.Context()))(a.t)
}

func (a *testAgent) services() []observe.Service {
	a.t.Helper()
	return decode[[]observe.Service](a.client().Services(a.t.Context()))(a.t)
}

func (a *testAgent) backends(service string) []observe.Backend {
	a.t.Helper()
	return decode[[]observe.Backend](a.client().Backends(a.t.Context(), service))(a.t)
}

func TestStatus(t *testing.T) {
	a := startAgent(t)
	a.DP.Probe(web, netip.MustParseAddrPort("192.0.2.1:1000"))
	want := observe.Status{
		Version: "v1", Commit: "abc", Node: "lb1", PID: os.Getpid(), Started: started,
		Config:   source.File{Path: "/etc/fairlead.yaml", Digest: "d1", Loaded: started},
		Revision: 1,
		DataPlane: observe.DataPlane{
			Kind: "fake", Attachments: []observe.Attachment{{Interface: "eth0", Mode: "native"}},
		},
		Services: v1alpha1.ServiceCounts{Total: 2, Programmed: 2},
		Backends: v1alpha1.BackendCounts{Total: 5, InUse: 3},
		Exits:    []observe.Exit{{Name: "forward", Packets: 1}},
	}
	got := a.status()
	for i := range got.Exits {
		got.Exits[i].PacketsPerSecond = 0 // rates are observe's interval_test.go's
	}
	if diff := cmp.Diff(want, got, exact); diff != "" {
		t.Error(diff)
	}
}

func TestServicesAndBackends(t *testing.T) {
	a := startAgent(t)
	id, _ := a.DP.Probe(web, netip.MustParseAddrPort("192.0.2.1:1000"))
	one := dataplane.Traffic{Packets: 1, Bytes: dataplanetest.FrameSize}

	got := a.services()
	want := []observe.Service{
		{
			Name: "web", VIP: web, Forward: lb.L2DSR,
			Programmed: true, DesiredRevision: 1, ProgrammedRevision: 1,
			Backends: 4, BackendsInUse: 2, BackendsHealthy: 4, BackendsDrained: 1, RingSize: got[0].RingSize, Traffic: one,
		},
		{
			Name: "dns", VIP: dns, Forward: lb.IPIP,
			Programmed: true, DesiredRevision: 1, ProgrammedRevision: 1,
			Backends: 1, BackendsInUse: 1, BackendsHealthy: 1, RingSize: got[1].RingSize,
		},
	}
	noRates := cmpopts.IgnoreTypes(observe.Rate{})
	if diff := cmp.Diff(want, got, exact, noRates); diff != "" {
		t.Error(diff)
	}

	entries, share := 0, 0.0
	for _, b := range a.backends("web") {
		var counted dataplane.Traffic
		if b.Address == id.Addr() {
			counted = one
		}
		reason := map[string]string{"10.0.0.23": "no route", "10.0.0.24": "weight 0"}[b.Address.String()]
		if b.Service != "web" || b.VIP != web || b.Reason != reason || b.InUse != (reason == "") || b.Traffic != counted {
			t.Errorf("backend %+v", b)
		}
		entries += b.RingEntries
		share += b.Share
	}
	if entries != got[0].RingSize || share < 0.999 || share > 1.001 {
		t.Errorf("the backends have %d ring entries of %d, share %f", entries, got[0].RingSize, share)
	}
	if all := a.backends(""); len(all) != 5 || all[4].Service != "dns" {
		t.Errorf("all backends: %+v", all)
	}
}

// Failures are reported, together with the services and backends that are programmed meanwhile.
func TestFailures(t *testing.T) {
	a := startAgent(t)
	changed := services()
	changed[1].Backends = []lb.Backend{changed[1].Backends[1], {Address: netip.MustParseAddr("10.0.0.29"), Port: 80, Weight: 1}}
	a.broken.Store(true)
	a.Set(t, changed[1]) // dns goes, web changes

	list := a.services()
	if len(list) != 2 {
		t.Fatalf("services %+v, want web and dns", list)
	}
	if s := list[0]; s.Programmed || s.DesiredRevision != 2 || s.ProgrammedRevision != 1 || s.Attempts != 1 || !strings.Contains(s.Error, "broken") {
		t.Errorf("web %+v, want a failed one of revision 1", s)
	}
	if s := list[1]; s.Name != "dns" || !s.Deleting || !strings.Contains(s.Error, "broken") {
		t.Errorf("dns %+v, want one that can't be deleted", s)
	}
	var got []string
	for _, b := range a.backends("web") {
		got = append(got, fmt.Sprintf("%s %d %t %s", b.Address, b.Weight, b.InUse, b.Reason))
	}
	want := []string{
		"10.0.0.21 0 true no longer desired",
		"10.0.0.22 1 true ",
		"10.0.0.23 0 false no route",
		"10.0.0.24 0 false weight 0",
		"10.0.0.29 1 false not programmed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("backends\n%q, want\n%q", got, want)
	}
	if s := a.status().Services; s != (v1alpha1.ServiceCounts{Total: 2, Failed: 2}) {
		t.Errorf("counts %+v", s)
	}
}

func TestErrors(t *testing.T) {
	a := startAgent(t)
	client := control.Dial(a.socket)
	if _, err := client.Backends(t.Context(), "nosuch"); err == nil || !strings.Contains(err.Error(), `"nosuch"`) {
		t.Errorf("backends of no service: error %v", err)
	}
	if err := client.Reload(t.Context()); err == nil || err.Error() != "x.yaml:1:2: bad\nx.yaml:3:4: worse" {
		t.Errorf("reload: error %v, want both lines", err)
	}
	_, err := control.Dial(a.socket + "x").Status(t.Context())
	if want := "no agent at " + a.socket + "x: connect: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("no agent: error %v, want %s", err, want)
	}
}

func TestInvalidRequests(t *testing.T) {
	a := startAgent(t)
	long := strings.Repeat("a", 64<<10)
	for _, tt := range []struct {
		request string
		want    int
	}{
		{"GET /v1/status", http.StatusOK},
		{"POST /v1/status", http.StatusMethodNotAllowed},
		{"DELETE /v1/services", http.StatusMethodNotAllowed},
		{"PUT /v1/backends", http.StatusMethodNotAllowed},
		{"GET /v1/reload", http.StatusMethodNotAllowed},
		{"GET /v1/nosuch", http.StatusNotFound},
		{"GET /", http.StatusNotFound},
		{"GET /v1/status?" + long, http.StatusRequestHeaderFieldsTooLarge},
		{"nonsense", http.StatusBadRequest},
	} {
		if got := a.send(tt.request); got != tt.want {
			t.Errorf("%.40s: status %d, want %d", tt.request, got, tt.want)
		}
	}
}

// send writes a request line and returns the answer's status.
func (a *testAgent) send(line string) int {
	a.t.Helper()
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	// The server may answer and leave before it has read everything.
	go func() { _, _ = io.WriteString(conn, line+" HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n") }()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		a.t.Fatalf("%.40s: %v", line, err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
