// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
)

const (
	// Packets to the VIP in the lab cloud arrive in clientVLAN and leave in serverVLAN.
	clientVLAN = 300
	// shop is the load balancer of TestCloud, shopService the service of its listener.
	shop        = "/v1/projects/web/loadbalancers/shop"
	shopService = "flb:web/shop/http"
)

var (
	// vipRoute is the route to the VIP, nextHop the balancer in clientVLAN.
	vipRoute = netip.MustParsePrefix(harness.VIP4 + "/32")
	nextHop  = netip.MustParseAddr("10.0.5.11")
)

// HTTP calls create a load balancer whose requests a balancer forwards to members in another VLAN, and
// the API shows which members are dead. Without the API server the balancer serves on.
func TestCloud(t *testing.T) {
	t.Parallel()
	harness.NeedRoot(t)
	client, token := apiToken(t, "octavia", "--project", "web")
	node, nodeToken := apiToken(t, "lb1", "--node", "lb1")
	l := &cloud{bringUp(t, "cloud", cloudTopology(t, client+node, nodeToken)), token}
	l.create(t)
	l.checkForwarded(t)
	l.checkStatistics(t)
	l.checkDeadMember(t)
	l.checkRestarts(t)
	l.checkDeleted(t)
}

// apiToken makes a token, and its line in the file of tokens.
func apiToken(t *testing.T, args ...string) (line, token string) {
	t.Helper()
	status, stdout, stderr := harness.Fairlead(t, append([]string{"apiserver", "token"}, args...)...)
	if status != 0 {
		t.Fatal(stderr)
	}
	return stderr, strings.TrimSpace(stdout)
}

// cloud is a lab with an API server on the balancer.
type cloud struct {
	*lab
	token string
}

// cloudTopology is the lab with a router that speaks BGP and sends packets for VIPs in clientVLAN,
// servers in serverVLAN, and an API server.
func cloudTopology(t *testing.T, tokens, nodeToken string) netlab.Topology {
	t.Helper()
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.L2DSR, Balancers: 1, Servers: 2, Router: netlab.FRR})
	if err != nil {
		t.Fatal(err)
	}
	topology = netlab.ServersInVLAN(topology, serverVLAN)
	topology.Services, topology.Learned, topology.Probes = nil, nil, nil
	router, balancer := topology.Host("router"), topology.Host("lb1")
	netlab.PlugRouter(&topology, netlab.Interface{Name: "eth3", VLAN: clientVLAN, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.5.1/24")}})
	router.Neighbours = append(router.Neighbours, netlab.Neighbour{Interface: "eth3", Address: nextHop, MAC: balancer.Interfaces[0].MAC})
	settings := balancer.Agent.With(nil)
	for i := range settings.BGP.Peers { // requests are counted: a busy machine delays an agent for more than BFD's 300 ms
		settings.BGP.Peers[i].BFD = &bgp.BFD{Interval: time.Second, Multiplier: bgp.DefaultBFD.Multiplier}
	}
	settings.BGP.Policies = []bgp.Policy{{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, VLAN: clientVLAN, NextHop4: nextHop}}
	file, found := strings.CutSuffix(settings.YAML(), "services: []\n")
	if !found {
		t.Fatalf("the configuration is\n%s", file)
	}
	balancer.Files = map[string]string{
		netlab.AgentFile: file + "apiServer: {urls: ['http://" + apiAddress + "'], tokenFile: node.token}\n",
		"node.token":     nodeToken,
		"tokens.yaml":    tokens,
		"policy.yaml": "addressPools: [{name: vips, addresses: [10.1.1.0/24]}]\n" +
			"loadBalancers: {memberNetworks: [10.0.4.0/24], memberMACs: true, segments: [{type: vlan, first: 100}, {type: vlan, first: 300}]}\n",
	}
	balancer.Processes[0].Args = append(balancer.Processes[0].Args, "--state-dir", "state")
	balancer.Processes = append(balancer.Processes, netlab.Process{Name: "apiserver", Args: []string{
		"fairlead", "apiserver", "--listen", apiAddress, "--data", "loadbalancers.db", "--create", "--policy", "policy.yaml", "--tokens", "tokens.yaml",
		"--metrics-address", "",
	}})
	return topology
}

// apiAddress is the API server's address, in the balancer's namespace.
const apiAddress = "127.0.0.1:9575"

// call sends a request to the API server, and returns the body of its response.
func (l *cloud) call(ctx context.Context, method, path, body string) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, harness.AnswerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+apiAddress+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+l.token)
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return l.Dial(ctx, "lb1", network, address)
		},
	}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// must sends a request that has to succeed.
func (l *cloud) must(t *testing.T, method, path, body string) []byte {
	t.Helper()
	status, answer, err := l.call(t.Context(), method, path, body)
	if err != nil || status/100 != 2 {
		t.Fatalf("%s %s: status %d, %v: %s", method, path, status, err, answer)
	}
	return answer
}

// memberStates returns the operating statuses of the members, by name; nil without an answer.
func (l *cloud) memberStates(t *testing.T) map[string]string {
	t.Helper()
	status, answer, err := l.call(t.Context(), "GET", shop+"/status", "")
	if err != nil || status != http.StatusOK {
		return nil
	}
	var found struct {
		Pools []struct {
			Members []struct{ Name, OperatingStatus string }
		}
	}
	harness.Decode(t, string(answer), &found)
	states := map[string]string{}
	for _, p := range found.Pools {
		for _, m := range p.Members {
			states[m.Name] = m.OperatingStatus
		}
	}
	return states
}

// Members of the load balancer.
const (
	firstMember  = "10.0.4.101:80"
	secondMember = "10.0.4.102:80"
)

// awaitMembers waits until the API shows these operating statuses.
func (l *cloud) awaitMembers(t *testing.T, first, second string) {
	t.Helper()
	var states map[string]string
	holds := func() bool {
		states = l.memberStates(t)
		return states[firstMember] == first && states[secondMember] == second
	}
	if !await.Holds(holds) {
		t.Fatalf("the members are %v, want %s and %s", states, first, second)
	}
}

// create creates the load balancer part by part, and waits until clients reach it.
func (l *cloud) create(t *testing.T) {
	t.Helper()
	harness.Until(t, "the API server answers", func() bool {
		status, _, err := l.call(t.Context(), "GET", "/v1/projects/web/loadbalancers", "")
		return err == nil && status == http.StatusOK
	})
	l.must(t, "PUT", shop, `{"forward": "l2dsr", "address": "10.1.1.1", "segment": {"type": "vlan", "id": 300}}`)
	l.must(t, "PUT", shop+"/pools/servers", `{"healthCheck": {"type": "http", "path": "/", "interval": "500ms", "fall": 2, "rise": 1}}`)
	l.must(t, "PUT", shop+"/listeners/http", `{"port": 80, "pool": "servers"}`)
	for member, server := range map[string]string{firstMember: "server1", secondMember: "server2"} {
		mac, err := json.Marshal(l.Topology.Host(server).Interfaces[0].MAC)
		if err != nil {
			t.Fatal(err)
		}
		l.must(t, "PUT", shop+"/pools/servers/members/"+member, `{"mac": `+string(mac)+`, "segment": {"type": "vlan", "id": 100}}`)
	}
	began := time.Now()
	l.awaitRoute(t, nextHop.String())
	t.Logf("the router has the route %s after the last call", time.Since(began).Round(time.Millisecond))
	l.awaitMembers(t, "ONLINE", "ONLINE")
}

// awaitRoute waits until the router's route to the VIP has this next hop, or is none.
func (l *cloud) awaitRoute(t *testing.T, via ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := l.AwaitRoute(ctx, netlab.LearnedRoute{Host: "router", Prefix: vipRoute, Via: via}); err != nil {
		t.Fatal(err)
	}
}

// checkForwarded checks that XDP forwards requests from one VLAN to the other.
func (l *cloud) checkForwarded(t *testing.T) {
	t.Helper()
	h := l.State().Host("lb1")
	before := harness.ExitsOf(t, h)
	answers := l.Gets(t, "client", harness.Origin(harness.VIP4), 50)
	if answers["server1"] == 0 || answers["server2"] == 0 || len(answers) != 2 {
		t.Errorf("answers are %v", answers)
	}
	if moved := harness.ExitsOf(t, h).Minus(before); moved["forward_l2dsr"] < 50*4 {
		t.Errorf("50 requests leave by %v", moved)
	}
	vlan := func(id uint32) lb.Segment { return lb.Segment{Type: lb.SegmentVLAN, ID: id} }
	if s := harness.Services(t, h)[shopService]; s.Segment != vlan(clientVLAN) {
		t.Errorf("the service is %+v", s)
	}
	for _, b := range harness.Backends(t, h, shopService) {
		if !strings.Contains(b.NextHop, vlan(serverVLAN).String()) {
			t.Errorf("the next hop of %s is %q, want %s", b.Address, b.NextHop, vlan(serverVLAN))
		}
	}
}

// checkStatistics checks that the API shows forwarded packets, within seconds of the first ones.
func (l *cloud) checkStatistics(t *testing.T) {
	t.Helper()
	type traffic struct{ Packets, Bytes, NewFlows int }
	var found struct {
		Nodes, ReportedNodes int
		OldestReport         time.Time
		traffic
		Listeners []struct {
			Name string
			traffic
		}
	}
	began := time.Now()
	harness.Until(t, "the API shows packets", func() bool {
		status, answer, err := l.call(t.Context(), "GET", shop+"/statistics", "")
		if err != nil || status != http.StatusOK {
			return false // too many requests
		}
		harness.Decode(t, string(answer), &found)
		return found.NewFlows > 0
	})
	t.Logf("the API shows packets after %s", time.Since(began).Round(time.Millisecond))
	if found.Nodes != 1 || found.ReportedNodes != 1 || len(found.Listeners) != 1 || found.Listeners[0].Name != "http" ||
		found.Listeners[0].traffic != found.traffic || found.Packets < found.NewFlows || found.Bytes < 40*found.Packets || time.Since(found.OldestReport) > time.Minute {
		t.Errorf("the statistics are %+v", found)
	}
}

// checkDeadMember checks that the API shows a member whose server is killed as dead, and the other one
// serves on.
func (l *cloud) checkDeadMember(t *testing.T) {
	t.Helper()
	killed := l.KillServer(t, "server1")
	l.awaitMembers(t, "ERROR", "ONLINE")
	t.Logf("the API shows the dead member after %s; 2 checks of 500ms and 1s are promised", time.Since(killed).Round(time.Millisecond))
	if answers := l.Gets(t, "client", harness.Origin(harness.VIP4), 20); answers["server2"] != 20 {
		t.Errorf("answers are %v", answers)
	}
	l.StartServer(t, "server1")
	l.awaitMembers(t, "ONLINE", "ONLINE")
}

// checkRestarts kills the API server under load, then the agent too, and starts them again.
func (l *cloud) checkRestarts(t *testing.T) {
	t.Helper()
	h := l.State().Host("lb1")
	load := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))
	revision := harness.Services(t, h)[shopService].DesiredRevision
	followed := func(reachable bool) {
		t.Helper()
		harness.Until(t, "the agent notices the API server", func() bool { return harness.Status(t, h).APIServer.Reachable == reachable })
	}
	l.killServer(t)
	followed(false)
	l.startServer(t)
	followed(true)
	l.awaitMembers(t, "ONLINE", "ONLINE") // the server has the report again
	if now := harness.Services(t, h)[shopService].DesiredRevision; now != revision {
		t.Errorf("the service had revision %d and has %d", revision, now)
	}

	l.killServer(t)
	l.KillAgent(t, h, "agent")
	l.restartAgent(t, h)
	if a := harness.Status(t, h).APIServer; a.Restored.IsZero() || !a.Synced.IsZero() || a.Reachable {
		t.Errorf("an agent without a server: %+v", a)
	}
	l.startServer(t)
	followed(true)
	l.awaitMembers(t, "ONLINE", "ONLINE")
	t.Logf("%d requests were answered meanwhile", load.End(t))
}

func (l *cloud) killServer(t *testing.T) {
	t.Helper()
	if err := l.Kill(t.Context(), "lb1", "apiserver"); err != nil {
		t.Fatal(err)
	}
}

func (l *cloud) startServer(t *testing.T) {
	t.Helper()
	if err := l.Restart(t.Context(), "lb1", "apiserver"); err != nil {
		t.Fatal(err)
	}
}

// restartAgent starts the agent, and waits until it serves the load balancer.
func (l *cloud) restartAgent(t *testing.T, h *netlab.HostState) {
	t.Helper()
	if err := l.Restart(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "the agent serves", func() bool {
		services, err := netlab.Decode[[]observe.Service](control.Dial(h.Socket).Services(t.Context()))
		return err == nil && len(services) == 1 && services[0].Programmed && services[0].BackendsInUse == 2
	})
}

// checkDeleted deletes the load balancer, of which nothing is left.
func (l *cloud) checkDeleted(t *testing.T) {
	t.Helper()
	h := l.State().Host("lb1")
	l.must(t, "DELETE", shop, "")
	harness.Until(t, "the balancer has no service", func() bool {
		s := harness.Status(t, h)
		return s.Services.Total == 0 && s.Backends.Total == 0 && s.APIServer.Objects == 0
	})
	l.awaitRoute(t)
	if list := l.must(t, "GET", "/v1/projects/web/loadbalancers", ""); bytes.Contains(list, []byte("shop")) {
		t.Errorf("left are %s", list)
	}
	harness.Until(t, "the saved state has no service", func() bool {
		return !strings.Contains(l.Run(t, "lb1", "cat", "state/apiserver.json"), harness.VIP4)
	})
}
