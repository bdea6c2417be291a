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

// removeTimeout bounds the removal of the lab.
const removeTimeout = 5 * time.Minute

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
	report *bench.Report
}

// Run measures; it leaves nothing, also if it fails or ctx ends.
func Run(ctx context.Context, cfg Config) (report *bench.Report, err error) {
	if cfg.Balancers < 1 || cfg.Balancers > maxBalancers {
		return nil, fmt.Errorf("%d load balancers: want 1 to %d", cfg.Balancers, maxBalancers)
	}
	if report, err = cfg.NewReport("openstack"); err != nil {
		return nil, err
	}
	cfg.Log("starting OpenStack")
	up, err := cloud.Up(ctx, cloud.Options{Labs: cfg.Labs, Name: cfg.Name, Provider: cfg.Provider, Balancers: 1, Servers: members})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, up.Logs())
		}
		err = errors.Join(err, up.Down(ctx))
	}()
	proxy, err := newProxy(up)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, proxy.close()) }()
	// The laboratory's ports_interval is shorter than the default.
	if err := up.Configure(ctx, "api_urls = http://"+proxyAddress, "ports_interval = 60"); err != nil {
		return nil, err
	}
	for server := range members {
		if err := up.AddVIPs(serverName(server), netip.MustParsePrefix("10.1.0.1/16")); err != nil {
			return nil, err
		}
	}
	t := &testbed{Cloud: up, proxy: proxy, cfg: cfg, client: up.NewClient("tenant"), report: report}
	if err := t.measureMembers(ctx); err != nil {
		return nil, err
	}
	return report, t.measureHealth(ctx)
}

// fields is an object of a request.
type fields map[string]any

// awaitNone waits until no load balancer has a provisioning status.
func (t *testbed) awaitNone(ctx context.Context, query string) error {
	for {
		var found struct{ LoadBalancers []struct{ ID string } }
		if err := t.client.Get(ctx, "loadbalancers?fields=id&limit=1&"+query, &found); err != nil {
			return err
		}
		if len(found.LoadBalancers) == 0 {
			return nil
		}
		if err := netlab.Sleep(ctx, pollPause); err != nil {
			return fmt.Errorf("load balancers with %s: %w", query, err)
		}
	}
}

// pollPause is the time between two requests that wait for Octavia, of which each keeps it busy.
const pollPause = 100 * time.Millisecond

// awaitActive waits until a load balancer can be changed.
func (t *testbed) awaitActive(ctx context.Context, id string) error {
	for {
		var found struct {
			LoadBalancer struct {
				Provisioning string `json:"provisioning_status"`
			}
		}
		if err := t.client.Get(ctx, "loadbalancers/"+id, &found); err != nil {
			return err
		}
		switch found.LoadBalancer.Provisioning {
		case "ACTIVE":
			return nil
		case "ERROR":
			return fmt.Errorf("load balancer %s is in ERROR", id)
		}
		if err := netlab.Sleep(ctx, pollPause); err != nil {
			return err
		}
	}
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
