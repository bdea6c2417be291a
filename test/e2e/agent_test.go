// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/netlab"
	"fairlead.io/fairlead/internal/observe"
)

// exits counts packets by the way they left a balancer.
type exits map[string]uint64

func (e exits) minus(before exits) exits {
	diff := exits{}
	for name, packets := range e {
		diff[name] = packets - before[name]
	}
	return diff
}

// sum adds up exits, whose names are joined by "+".
func (e exits) sum(names string) uint64 {
	sum := uint64(0)
	for name := range strings.SplitSeq(names, "+") {
		sum += e[name]
	}
	return sum
}

// ask decodes what a balancer's agent answers.
func ask[T any](t *testing.T, balancer string, request func(context.Context) ([]byte, error)) T {
	t.Helper()
	var answer T
	text, err := request(t.Context())
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		t.Fatalf("%s: %v", balancer, err)
	}
	return answer
}

func status(t *testing.T, h *netlab.HostState) observe.Status {
	t.Helper()
	return ask[observe.Status](t, h.Name, observe.Dial(h.Socket).Status)
}

// services are a balancer's by name.
func services(t *testing.T, h *netlab.HostState) map[string]observe.Service {
	t.Helper()
	byName := map[string]observe.Service{}
	for _, s := range ask[[]observe.Service](t, h.Name, observe.Dial(h.Socket).Services) {
		byName[s.Name] = s
	}
	return byName
}

// backends are those of one service of a balancer, by address.
func backends(t *testing.T, h *netlab.HostState, service string) map[string]observe.Backend {
	t.Helper()
	byAddress := map[string]observe.Backend{}
	list := ask[[]observe.Backend](t, h.Name, func(ctx context.Context) ([]byte, error) {
		return observe.Dial(h.Socket).Backends(ctx, service)
	})
	for _, b := range list {
		byAddress[b.Address.String()] = b
	}
	return byAddress
}

func exitsOf(t *testing.T, h *netlab.HostState) exits {
	t.Helper()
	e := exits{}
	for _, exit := range status(t, h).Exits {
		e[exit.Name] = exit.Packets
	}
	return e
}

// configure replaces the file of every balancer at once, as editors do, and
// waits until the agents have seen it and programmed what it says.
func (l *lab) configure(t *testing.T, services []lb.Service) {
	t.Helper()
	for _, h := range l.hosts(netlab.Balancer) {
		l.write(t, &h, l.config(h.Name, services))
	}
	for _, h := range l.hosts(netlab.Balancer) {
		want := digest(l.config(h.Name, services))
		until(t, h.Name+" has the new configuration", func() bool {
			s := status(t, &h)
			return s.Config.Digest == want && s.Services.Programmed == len(services)
		})
	}
}

// config is the file of a balancer with other services.
func (l *lab) config(host string, services []lb.Service) string {
	return l.topology.Host(host).Agent.With(services).YAML()
}

// write puts a file in the place of a balancer's configuration.
func (l *lab) write(t *testing.T, h *netlab.HostState, text string) {
	t.Helper()
	if err := h.ReplaceFile(netlab.AgentFile, text); err != nil {
		t.Fatal(err)
	}
}

func digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// traffic is that of a service on all balancers, without what they relay.
func (l *lab) traffic(t *testing.T, service string) dataplane.Traffic {
	t.Helper()
	var sum dataplane.Traffic
	for _, h := range l.hosts(netlab.Balancer) {
		all := services(t, &h)[service].Traffic
		for _, b := range backends(t, &h, service) {
			if strings.Contains(b.NextHop, " to node ") { // which counts them too
				all.Packets, all.Bytes = all.Packets-b.Packets, all.Bytes-b.Bytes
			}
		}
		sum = sum.Add(all)
	}
	return sum
}
