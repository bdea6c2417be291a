// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// resolver is dnsmasq on each balancer, at the address of this machine's first DNS server.
type resolver struct {
	*lab
	hosts   string
	process netlab.Process
}

// startResolver starts a resolver in which web.test has the addresses of these servers.
func (l *lab) startResolver(t *testing.T, servers ...string) *resolver {
	t.Helper()
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "nameserver ")
	address, err := netip.ParseAddr(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	if err != nil {
		t.Fatalf("/etc/resolv.conf: %v", err)
	}
	r := &resolver{lab: l, hosts: filepath.Join(t.TempDir(), "hosts")}
	r.write(t, servers...)
	r.process = netlab.Process{Name: "dnsmasq", Args: []string{
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--user=root", "--no-resolv", "--no-hosts", "--addn-hosts=" + r.hosts,
		"--local=/test/", "--local-ttl=2", "--bind-interfaces", "--interface=lo", "--listen-address=" + address.String(),
		"--srv-host=_http._tcp.web.test,web.test," + fmt.Sprint(r.port()),
	}}
	for _, h := range l.Hosts(netlab.Balancer) {
		if !address.IsLoopback() {
			l.Run(t, h.Name, "ip", "address", "add", address.String(), "dev", "lo")
		}
		if err := l.Start(t.Context(), h.Name, r.process); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// port is the port of the servers.
func (r *resolver) port() uint16 { return r.Service("web").Backends[0].Port }

// write writes the addresses of web.test.
func (r *resolver) write(t *testing.T, servers ...string) {
	t.Helper()
	var text strings.Builder
	for _, name := range servers {
		for _, s := range []string{"web", "web6"} {
			b := r.Service(s).Backends[slices.Index(r.ServerNames(), name)]
			fmt.Fprintf(&text, "%s web.test\n", b.Address)
		}
	}
	if err := errors.Join(os.WriteFile(r.hosts+".next", []byte(text.String()), 0o644), os.Rename(r.hosts+".next", r.hosts)); err != nil {
		t.Fatal(err)
	}
}

// set changes the addresses of web.test.
func (r *resolver) set(t *testing.T, servers ...string) {
	t.Helper()
	r.write(t, servers...)
	for _, h := range r.Hosts(netlab.Balancer) {
		if err := unix.Kill(h.Process("dnsmasq").PID, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
}

// followWeb has the agents follow the backends of web and web6.
func (r *resolver) followWeb(t *testing.T) {
	t.Helper()
	for _, h := range r.Hosts(netlab.Balancer) {
		var file yaml.MapSlice
		if err := yaml.UnmarshalWithOptions([]byte(r.Config(h.Name, r.Topology.Services)), &file, yaml.UseOrderedMap()); err != nil {
			t.Fatal(err)
		}
		for _, section := range file {
			services, _ := section.Value.([]any)
			for i := range services {
				s := services[i].(yaml.MapSlice)
				for j := range s {
					switch {
					case s[j].Key == "backends" && s[0].Value == "web":
						s[j].Value = map[string]any{"dns": "_http._tcp.web.test", "type": "srv"}
					case s[j].Key == "backends" && s[0].Value == "web6":
						s[j].Value = map[string]any{"dns": "web.test", "type": "a", "port": r.port()}
					}
				}
			}
		}
		text, err := yaml.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		r.Write(t, &h, string(text))
		harness.Until(t, h.Name+" has the new file", func() bool { return harness.Status(t, &h).Config.Digest == harness.Digest(string(text)) })
	}
}

// await waits until all balancers send new flows of both services to these servers only.
func (r *resolver) await(t *testing.T, servers ...string) {
	t.Helper()
	for _, h := range r.Hosts(netlab.Balancer) {
		for _, service := range []string{"web", "web6"} {
			harness.Until(t, fmt.Sprintf("%s of %s is at %v", service, h.Name, servers), func() bool {
				all := harness.Backends(t, &h, service)
				for i, name := range r.ServerNames() {
					b := all[r.Service(service).Backends[i].Address.String()]
					if (b.Share > 0) != slices.Contains(servers, name) {
						return false
					}
				}
				return true
			})
		}
	}
}

// status waits until all agents have a state of followed backends.
func (r *resolver) status(t *testing.T, what string, holds func(s *observe.Status) bool) {
	t.Helper()
	for _, h := range r.Hosts(netlab.Balancer) {
		harness.Until(t, h.Name+": "+what, func() bool {
			s := harness.Status(t, &h)
			return holds(&s)
		})
	}
}

// Servers come from the names of a resolver, whose records change under load: no request on a new connection is lost,
// and long connections stay with servers that have left. While the resolver is away the last answer stays, also for
// an agent that starts meanwhile.
func TestNames(t *testing.T) {
	topology := harness.ECMP(t, lb.NAT)
	for i := range topology.Hosts {
		if h := &topology.Hosts[i]; h.Role == netlab.Balancer {
			h.Processes[0].Args = append(h.Processes[0].Args, "--state-dir", "state")
		}
	}
	l := bringUp(t, "names", topology)
	names := l.ServerNames()
	r := l.startResolver(t, names[:2]...)
	r.followWeb(t)
	r.await(t, names[:2]...)
	clients := l.OpenClients(t, 64)
	end := harness.Repeat(t, harness.Pace, func() error {
		for _, c := range clients {
			if err := c.Query(); err != nil {
				return err
			}
		}
		return nil
	})
	var loads []*harness.Load
	for _, vip := range []string{harness.VIP4, harness.VIP6} {
		loads = append(loads, l.Load(t, "client", harness.LoadLimit, "-H", "Connection: close", harness.Origin(vip)))
	}
	r.set(t, names...)
	r.await(t, names...)
	r.set(t, names[1:3]...)
	r.await(t, names[1:3]...)

	for _, h := range l.Hosts(netlab.Balancer) {
		if err := l.Stop(t.Context(), h.Name, "dnsmasq"); err != nil {
			t.Fatal(err)
		}
	}
	failing := func(s *observe.Status) bool {
		return len(s.FollowedBackends) == 2 && !slices.ContainsFunc(s.FollowedBackends, func(f source.FollowedBackends) bool {
			return f.Error == "" || f.Answered.IsZero() || f.Awaited
		})
	}
	r.status(t, "the resolver is away", failing)
	h := l.State().Host("lb1")
	l.KillAgent(t, h, "agent")
	if err := l.Restart(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "the next agent has the services", func() bool {
		_, err := control.Dial(h.Socket).Status(t.Context())
		return err == nil && len(harness.Services(t, h)) == len(topology.Services)
	})
	r.await(t, names[1:3]...)
	r.status(t, "the resolver is away", failing)
	r.write(t, names[2:]...)
	for _, h := range l.Hosts(netlab.Balancer) {
		if err := l.Restart(t.Context(), h.Name, "dnsmasq"); err != nil {
			t.Fatal(err)
		}
	}
	r.await(t, names[2:]...)
	for _, load := range loads {
		t.Logf("%d requests answered", load.End(t))
	}
	t.Logf("%d rounds of %d long connections", end(), len(clients))
}
