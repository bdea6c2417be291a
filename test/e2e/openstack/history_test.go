// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// caller makes random calls of Octavia's API, valid and invalid ones, for load balancers of its own. It repeats a call
// that fails until it has an answer, as clients do.
type caller struct {
	cloud  *cloud
	random *rand.Rand
	// name is the name of its load balancers.
	name string
	// answered counts the calls of all callers that have an answer, repeated those that had to be repeated.
	answered, repeated *atomic.Int64
}

// call is a call of Octavia's API.
type call struct {
	method, path string
	body         any
	// refused is a part of the answer to an invalid call.
	refused string
}

// fields is an object of a request.
type fields map[string]any

// callLimit is how long a call may be repeated.
const callLimit = 5 * time.Minute

// callPause is the time between two attempts of a call.
const callPause = 300 * time.Millisecond

// run makes calls until there are so many of all callers, and stop is closed.
func (r *caller) run(ctx context.Context, least int64, stop <-chan struct{}) error {
	for {
		if r.answered.Load() >= least {
			select {
			case <-stop:
				return nil
			default:
			}
		}
		next, err := r.next(ctx)
		if err == nil {
			err = r.repeat(ctx, next)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		r.answered.Add(1)
	}
}

// repeat makes a call until it has an answer.
func (r *caller) repeat(ctx context.Context, c call) error {
	deadline := time.Now().Add(callLimit)
	for attempt := 0; ; attempt++ {
		status, answer, err := r.cloud.client.Call(ctx, c.method, c.path, c.body)
		if err == nil && c.final(status, string(answer)) {
			return nil
		}
		if err == nil && !isRepeated(status, string(answer)) || time.Now().After(deadline) {
			return fmt.Errorf("%s %s %v, refused by %q: status %d, %w: %s",
				c.method, c.path, c.body, c.refused, status, cmp.Or(err, errAnswer), answer)
		}
		if attempt == 0 {
			r.repeated.Add(1)
		}
		if err := netlab.Sleep(ctx, callPause); err != nil {
			return err
		}
	}
}

// final says if an answer ends a call: it was successful, refused as expected, or its object is missing.
func (c *call) final(status int, answer string) bool {
	switch status {
	case http.StatusNotFound:
		return true
	case http.StatusInternalServerError:
		// Octavia's answer to a pool for a listener that has been deleted.
		if strings.Contains(answer, "'NoneType' object has no attribute 'load_balancer_id'") {
			return true
		}
	case http.StatusConflict:
		// An earlier attempt was successful.
		return slices.ContainsFunc([]string{"Another ", "This pool already", "This listener already"}, func(part string) bool {
			return strings.Contains(answer, part)
		})
	}
	if c.refused != "" {
		return status/100 != 2 && strings.Contains(answer, c.refused)
	}
	return status/100 == 2
}

// isRepeated says if the same call may succeed later: another one is in progress, or a service isn't there.
func isRepeated(status int, answer string) bool {
	switch status {
	case http.StatusConflict:
		return strings.Contains(answer, "immutable") || strings.Contains(answer, "Invalid state")
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// read decodes the answer to a GET request, which is repeated. The error is errMissing if there is no such object.
func (r *caller) read(ctx context.Context, path string, into any) error {
	deadline := time.Now().Add(callLimit)
	for {
		err := r.cloud.client.Get(ctx, path, into)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		if strings.Contains(err.Error(), "status 404") {
			return errMissing
		}
		if err := netlab.Sleep(ctx, callPause); err != nil {
			return err
		}
	}
}

var (
	errMissing = errors.New("no such object")
	errAnswer  = errors.New("unexpected answer")
)

// part is a part of a load balancer in its status tree. Listeners and pools are named for protocol and port.
type part struct {
	ID, Name, Address         string
	Provisioning              string `json:"provisioning_status"`
	Listeners, Pools, Members []part
	Monitor                   struct{ ID string } `json:"health_monitor"`
}

// protocol returns the protocol and the port of a listener, or of a pool's listener.
func (p *part) protocol() (name string, port int) {
	name, text, _ := strings.Cut(p.Name, "-")
	port, _ = strconv.Atoi(text)
	return name, port
}

// most is how many load balancers a caller has.
const most = 3

// next returns a random call.
func (r *caller) next(ctx context.Context) (call, error) {
	for {
		var all struct{ LoadBalancers []part }
		if err := r.read(ctx, "loadbalancers?name="+r.name, &all); err != nil {
			return call{}, err
		}
		// Octavia answers to each call for a deleted one that it is immutable.
		all.LoadBalancers = slices.DeleteFunc(all.LoadBalancers, func(p part) bool { return strings.HasSuffix(p.Provisioning, "DELETE") })
		if n := len(all.LoadBalancers); n == 0 || n < most && r.random.IntN(6) == 0 {
			return r.createBalancer(), nil
		}
		of := pick(r, all.LoadBalancers)
		var found struct{ Statuses struct{ LoadBalancer part } }
		err := r.read(ctx, "loadbalancers/"+of.ID+"/status", &found)
		if err == nil {
			return r.change(&found.Statuses.LoadBalancer), nil
		}
		if !errors.Is(err, errMissing) {
			return call{}, err
		}
	}
}

func pick[T any](r *caller, all []T) T { return all[r.random.IntN(len(all))] }

// chance is true once in so many times.
func (r *caller) chance(times int) bool { return r.random.IntN(times) == 0 }

// ports of listeners. Members answer at the first one.
var ports = []int{80, 8001, 8002, 8003}

// createBalancer makes a load balancer with a listener, a pool and members, or an empty one.
func (r *caller) createBalancer() call {
	balancer := fields{"name": r.name, "vip_subnet_id": r.cloud.plane.Subnets["vips4"]}
	c := call{http.MethodPost, "loadbalancers", fields{"loadbalancer": balancer}, ""}
	if r.chance(3) {
		return c
	}
	port, algorithm := pick(r, ports), "SOURCE_IP_PORT"
	if r.chance(5) {
		algorithm, c.refused = "ROUND_ROBIN", "SOURCE_IP_PORT"
	}
	name := fmt.Sprint("TCP-", port)
	balancer["listeners"] = []fields{{"name": name, "protocol": "TCP", "protocol_port": port, "default_pool": fields{
		"name": name, "protocol": "TCP", "lb_algorithm": algorithm, "members": r.members(port), "healthmonitor": r.monitor("TCP"),
	}}}
	return c
}

// change returns a random call for a load balancer: for itself, or for one of its listeners, with its pool.
func (r *caller) change(of *part) call {
	switch n := r.random.IntN(12); {
	case n == 0:
		return call{http.MethodDelete, "loadbalancers/" + of.ID + "?cascade=true", nil, ""}
	case n == 1:
		return call{http.MethodPut, "loadbalancers/" + of.ID, fields{"loadbalancer": r.text("admin_state_up", !r.chance(3))}, ""}
	case n < 4 || len(of.Listeners) == 0:
		return r.createListener(of)
	}
	listener := pick(r, of.Listeners)
	switch n := r.random.IntN(12); {
	case n == 0:
		return call{http.MethodDelete, "listeners/" + listener.ID, nil, ""}
	case n < 3:
		return r.updateListener(&listener)
	case len(listener.Pools) == 0:
		return r.createPool(&listener)
	case n == 3:
		return call{http.MethodDelete, "pools/" + listener.Pools[0].ID, nil, ""}
	case n == 4:
		return r.updatePool(&listener.Pools[0])
	case n < 7:
		return r.changeMonitor(&listener.Pools[0])
	default:
		return r.changeMembers(&listener.Pools[0])
	}
}

// text is a field, or once in four times a description, of which the LB API has none.
func (r *caller) text(name string, value any) fields {
	if r.chance(4) {
		return fields{"description": fmt.Sprint(r.random.Uint32())}
	}
	return fields{name: value}
}

func (r *caller) createListener(of *part) call {
	protocol, port := pick(r, []string{"TCP", "TCP", "UDP"}), pick(r, ports)
	listener := fields{
		"loadbalancer_id": of.ID, "name": fmt.Sprintf("%s-%d", protocol, port), "protocol": protocol, "protocol_port": port,
	}
	c := call{http.MethodPost, "listeners", fields{"listener": listener}, ""}
	switch r.random.IntN(8) {
	case 0:
		listener["protocol"], listener["protocol_port"], c.refused = "HTTP", 9000, "TCP and UDP are"
	case 1:
		listener["connection_limit"], listener["protocol_port"], c.refused = 5, 9000, "connection_limit"
	case 2:
		listener["allowed_cidrs"] = []string{"10.0.1.0/24"}
	}
	return c
}

func (r *caller) updateListener(listener *part) call {
	var change fields
	c := call{http.MethodPut, "listeners/" + listener.ID, nil, ""}
	switch r.random.IntN(4) {
	case 0:
		change, c.refused = fields{"connection_limit": 7}, "connection_limit"
	case 1:
		change = fields{"allowed_cidrs": pick(r, [][]string{{}, {"10.0.1.0/24"}, {"0.0.0.0/0"}})}
	case 2:
		change = fields{"timeout_client_data": 1000 * (60 + r.random.IntN(60))}
	default:
		change = r.text("admin_state_up", r.chance(2))
	}
	c.body = fields{"listener": change}
	return c
}

func (r *caller) createPool(listener *part) call {
	protocol, _ := listener.protocol()
	pool := fields{
		"listener_id": listener.ID, "name": listener.Name, "protocol": protocol,
		"lb_algorithm": pick(r, []string{"SOURCE_IP_PORT", "SOURCE_IP"}),
	}
	c := call{http.MethodPost, "pools", fields{"pool": pool}, ""}
	if r.chance(5) {
		pool["lb_algorithm"], c.refused = "LEAST_CONNECTIONS", "SOURCE_IP_PORT"
	}
	return c
}

func (r *caller) updatePool(pool *part) call {
	change := r.text("admin_state_up", r.chance(2))
	if r.chance(2) {
		change = fields{"session_persistence": fields{"type": "SOURCE_IP"}}
	}
	return call{http.MethodPut, "pools/" + pool.ID, fields{"pool": change}, ""}
}

// changeMonitor creates, changes or deletes the monitor of a pool.
func (r *caller) changeMonitor(pool *part) call {
	if pool.Monitor.ID == "" {
		protocol, _ := pool.protocol()
		monitor := r.monitor(protocol)
		monitor["pool_id"] = pool.ID
		c := call{http.MethodPost, "healthmonitors", fields{"healthmonitor": monitor}, ""}
		if protocol == "TCP" && r.chance(5) {
			monitor["type"], c.refused = "TLS-HELLO", "TLS-HELLO"
		}
		return c
	}
	if r.chance(3) {
		return call{http.MethodDelete, "healthmonitors/" + pool.Monitor.ID, nil, ""}
	}
	return call{http.MethodPut, "healthmonitors/" + pool.Monitor.ID, fields{"healthmonitor": pick(r, []fields{
		{"delay": 3 + r.random.IntN(3)}, {"admin_state_up": r.chance(2)}, {"max_retries_down": 1 + r.random.IntN(3)},
	})}, ""}
}

// monitor returns the fields of a new monitor.
func (r *caller) monitor(protocol string) fields {
	kind, delay := "UDP-CONNECT", 3 // Octavia's API takes no shorter one
	if protocol == "TCP" {
		kind, delay = pick(r, []string{"TCP", "HTTP", "PING"}), 1
	}
	return fields{"type": kind, "delay": delay, "timeout": 1, "max_retries": 1, "max_retries_down": 1 + r.random.IntN(2)}
}

// changeMembers creates, changes or deletes a member, or all of them in a batch.
func (r *caller) changeMembers(pool *part) call {
	_, port := pool.protocol()
	path := "pools/" + pool.ID + "/members"
	switch n := r.random.IntN(10); {
	case n < 2:
		if r.chance(2) {
			path += "?additive_only=true"
		}
		return call{http.MethodPut, path, fields{"members": r.members(port)}, ""}
	case n < 5 || len(pool.Members) == 0:
		c, member := call{method: http.MethodPost, path: path}, r.member(port, r.random.IntN(2))
		switch r.random.IntN(8) {
		case 0:
			member["address"], c.refused = "10.0.4.250", "Neutron has 0 ports"
		case 1:
			member["protocol_port"], c.refused = 9, "differs from the listener"
		}
		c.body = fields{"member": member}
		return c
	case n < 7:
		return call{http.MethodDelete, path + "/" + pick(r, pool.Members).ID, nil, ""}
	default:
		return call{http.MethodPut, path + "/" + pick(r, pool.Members).ID, fields{"member": pick(r, []fields{
			r.text("weight", r.random.IntN(10)), {"admin_state_up": r.chance(2)}, {"backup": r.chance(2)},
		})}, ""}
	}
}

// members returns one or two members.
func (r *caller) members(port int) []fields {
	all := []fields{r.member(port, 0), r.member(port, 1)}
	return all[r.random.IntN(2):]
}

// member returns the fields of a member, which is one of two servers.
func (r *caller) member(port, server int) fields {
	return fields{
		"address": fmt.Sprint("10.0.4.", 101+server), "protocol_port": port, "weight": 1 + r.random.IntN(5),
		"subnet_id": r.cloud.plane.Subnets["members4"],
	}
}
