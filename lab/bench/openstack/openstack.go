// SPDX-License-Identifier: Apache-2.0

// Package openstack measures how soon changes of a cloud reach packets, and changes of packets' servers the cloud: the
// time from the creation of a member by Octavia's API to its first packet (member.go), and from a member's change of
// health to Octavia's status (health.go). It runs OpenStack's control plane and a balancer in a lab (lab/openstack).
// cmd/fairlab calls Run.
package openstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	cloud "fairlead.io/fairlead/lab/openstack"
)

// Config configures Run.
type Config struct {
	bench.Config
	// Name of the lab.
	Name string
	// Provider is the folder of the provider's package.
	Provider string
	// Members is how often a member is created, Changes the number of changes of health, Balancers the number of load
	// balancers during these.
	Members, Changes, Balancers int
}

// members is the number of members of each load balancer whose health changes: one at each server.
const members = 10

// maxBalancers bounds the ports of members.
const maxBalancers = 4096

// Targets are 99th percentiles in milliseconds.
const (
	packetTarget = 100
	statusTarget = 5000
)

// testbed is the running cloud.
type testbed struct {
	*cloud.Cloud
	cfg    Config
	client *cloud.Client
	proxy  *proxy
	// servers accept connections at ports of the members.
	servers *servers
}

// seen is the findings of a cell, each of which sets some of them.
type seen struct {
	Creations creations
	// Shown is the seconds until Octavia shows all load balancers as online.
	Shown    float64
	Verdicts verdicts
}

// The names of cells.
const (
	membersCell = "members"
	healthCell  = "health"
)

// Run measures; it leaves nothing, also if it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (*bench.Report, error) {
	if cfg.Balancers < 1 || cfg.Balancers > maxBalancers {
		return nil, fmt.Errorf("%d load balancers: want 1 to %d", cfg.Balancers, maxBalancers)
	}
	if err := cloud.Check(ctx); err != nil {
		return nil, bench.Unavailable{Err: err}
	}
	t := &testbed{cfg: cfg}
	return bench.Run(ctx, cfg.Config, bench.Bench[seen]{
		Name: "openstack", Stage: bench.Stage{Setup: t.start, Remove: t.down},
		Groups: []bench.Group[seen]{
			bench.Single(bench.Cell[seen]{Name: membersCell, Programs: []string{"fairlead", "mariadbd"}, Measure: t.measureMembers}),
			bench.Single(bench.Cell[seen]{Name: healthCell, Measure: t.measureHealth}),
		},
		Report: func(r *bench.Report, found bench.Found[seen]) error {
			for _, s := range found[membersCell] {
				s.Creations.add(r)
			}
			for _, s := range found[healthCell] {
				labels := map[string]string{"loadbalancers": fmt.Sprint(cfg.Balancers), "members": fmt.Sprint(cfg.Balancers * members)}
				r.Add("all_shown", "s", bench.Runs{s.Shown}, labels)
				s.Verdicts.add(r, labels)
			}
			return nil
		},
	})
}

// start starts the cloud. Its driver writes through the proxy.
func (t *testbed) start(ctx context.Context) (err error) {
	t.Cloud, err = cloud.Up(ctx, cloud.Options{Labs: t.cfg.Labs, Name: t.cfg.Name, Provider: t.cfg.Provider, Balancers: 1, Servers: members})
	if err != nil {
		t.Cloud = nil
		return err
	}
	t.client, t.servers = t.NewClient("tenant"), &servers{testbed: t, listeners: map[string]net.Listener{}}
	if t.proxy, err = newProxy(t.Cloud); err != nil {
		return err
	}
	// The laboratory's ports_interval is shorter than the default.
	if err := t.Configure(ctx, "api_urls = http://"+proxyAddress, "ports_interval = 60"); err != nil {
		return err
	}
	for server := range members {
		if err := t.AddVIPs(ctx, serverName(server), netip.MustParsePrefix("10.1.0.1/16")); err != nil {
			return err
		}
	}
	return nil
}

func (t *testbed) down(ctx context.Context) error {
	if t.Cloud == nil {
		return nil
	}
	t.servers.close()
	err := t.Down(ctx)
	if t.proxy != nil {
		err = errors.Join(err, t.proxy.close())
	}
	return err
}

// withLogs adds the ends of the logs to an error.
func (t *testbed) withLogs(err error) error {
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, t.Logs())
	}
	return err
}

// fields is an object of a request.
type fields map[string]any

// awaitNone waits until no load balancer has a provisioning status.
func (t *testbed) awaitNone(ctx context.Context, query string) error {
	return bench.Await(ctx, statusLimit, pollPause, func(ctx context.Context) error {
		var found struct{ LoadBalancers []struct{ ID string } }
		err := t.client.Get(ctx, "loadbalancers?fields=id&limit=1&"+query, &found)
		if err == nil && len(found.LoadBalancers) > 0 {
			err = fmt.Errorf("load balancers with %s", query)
		}
		return err
	})
}

// statusLimit is how long Octavia may take to show a status.
const statusLimit = time.Hour

// pollPause is the time between two requests that wait for Octavia, of which each keeps it busy.
const pollPause = 100 * time.Millisecond

// awaitActive waits until a load balancer can be changed.
func (t *testbed) awaitActive(ctx context.Context, id string) error {
	return bench.Await(ctx, statusLimit, pollPause, func(ctx context.Context) error {
		var found struct {
			LoadBalancer struct {
				Provisioning string `json:"provisioning_status"`
			}
		}
		err := t.client.Get(ctx, "loadbalancers/"+id, &found)
		status := found.LoadBalancer.Provisioning
		if err == nil && status != "ACTIVE" {
			err = fmt.Errorf("load balancer %s is in %s", id, status)
		}
		if status == "ERROR" {
			err = netlab.Permanent{Err: err}
		}
		return err
	})
}

// remove deletes an object with its parts.
func (t *testbed) remove(ctx context.Context, path string) error {
	status, answer, err := t.client.Call(ctx, http.MethodDelete, path, nil)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("DELETE %s: status %d: %s", path, status, answer)
	}
	return err
}

// balancer is a load balancer as Octavia answers its creation.
type balancer struct {
	ID        string
	Project   string `json:"project_id"`
	VIP       string `json:"vip_address"`
	Listeners []struct{ ID string }
	Pools     []struct{ ID string }
}

// create makes a load balancer with a listener and a pool.
func (t *testbed) create(ctx context.Context, protocol string, port int, pool fields) (balancer, error) {
	var made struct{ LoadBalancer balancer }
	pool["protocol"], pool["lb_algorithm"], pool["name"] = protocol, "SOURCE_IP_PORT", "bench"
	err := t.client.Create(ctx, "loadbalancers", fields{"loadbalancer": fields{
		"name": fmt.Sprint("bench", port), "vip_subnet_id": t.Subnets["vips4"],
		"listeners": []fields{{"protocol": protocol, "protocol_port": port, "default_pool": pool}},
	}}, &made)
	return made.LoadBalancer, err
}

// member are the fields of a member at a server.
func (t *testbed) member(server, port int) fields {
	return fields{"address": address(server), "protocol_port": port, "subnet_id": t.Subnets["members4"]}
}

// address is the address of the nth server, from 0 on.
func address(server int) string { return fmt.Sprint("10.0.4.", 101+server) }

// serverName is the name of the nth server, from 0 on.
func serverName(server int) string { return fmt.Sprint("server", server+1) }
