// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
)

// Exits counts the packets of a balancer by exit.
type Exits map[string]uint64

// Minus returns the counts since before.
func (e Exits) Minus(before Exits) Exits {
	diff := Exits{}
	for name, packets := range e {
		diff[name] = packets - before[name]
	}
	return diff
}

// Sum adds up exits; names joins them by "+".
func (e Exits) Sum(names string) uint64 {
	sum := uint64(0)
	for name := range strings.SplitSeq(names, "+") {
		sum += e[name]
	}
	return sum
}

// Query decodes the answer of a balancer's agent.
func Query[T any](t *testing.T, balancer string, request func(context.Context) ([]byte, error)) T {
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

// Status returns the status of a balancer's agent.
func Status(t *testing.T, h *netlab.HostState) observe.Status {
	t.Helper()
	return Query[observe.Status](t, h.Name, control.Dial(h.Socket).Status)
}

// Services returns the services of a balancer by name.
func Services(t *testing.T, h *netlab.HostState) map[string]observe.Service {
	t.Helper()
	byName := map[string]observe.Service{}
	for _, s := range Query[[]observe.Service](t, h.Name, control.Dial(h.Socket).Services) {
		byName[s.Name] = s
	}
	return byName
}

// Backends returns the backends of one service of a balancer by address.
func Backends(t *testing.T, h *netlab.HostState, service string) map[string]observe.Backend {
	t.Helper()
	byAddress := map[string]observe.Backend{}
	list := Query[[]observe.Backend](t, h.Name, func(ctx context.Context) ([]byte, error) {
		return control.Dial(h.Socket).Backends(ctx, service)
	})
	for _, b := range list {
		byAddress[b.Address.String()] = b
	}
	return byAddress
}

// ExitsOf reads the exit counters of a balancer.
func ExitsOf(t *testing.T, h *netlab.HostState) Exits {
	t.Helper()
	e := Exits{}
	for _, exit := range Status(t, h).Exits {
		e[exit.Name] = exit.Packets
	}
	return e
}

// Configure replaces the file of every balancer, and waits until the agents have
// loaded and programmed it.
func (l *Lab) Configure(t *testing.T, services []lb.Service) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		l.Write(t, &h, l.Config(h.Name, services))
	}
	for _, h := range l.Hosts(netlab.Balancer) {
		want := Digest(l.Config(h.Name, services))
		Until(t, h.Name+" has the new configuration", func() bool {
			s := Status(t, &h)
			return s.Config.Digest == want && int(s.Services.Programmed) == len(services)
		})
	}
}

// Write replaces the configuration file of a balancer.
func (l *Lab) Write(t *testing.T, h *netlab.HostState, text string) {
	t.Helper()
	if err := h.ReplaceFile(netlab.AgentFile, text); err != nil {
		t.Fatal(err)
	}
}

// Digest is how agents identify a configuration.
func Digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// Traffic sums the traffic of a service over all balancers, without relayed packets.
func (l *Lab) Traffic(t *testing.T, service string) dataplane.Traffic {
	t.Helper()
	var sum dataplane.Traffic
	for _, h := range l.Hosts(netlab.Balancer) {
		all := Services(t, &h)[service].Traffic
		for _, b := range Backends(t, &h, service) {
			if strings.Contains(b.NextHop, " to node ") { // counted there too
				all.Packets, all.Bytes = all.Packets-b.Packets, all.Bytes-b.Bytes
			}
		}
		sum = sum.Add(all)
	}
	return sum
}

// ListedHost is a host in the output of "lab list -o json".
type ListedHost struct {
	Name       string   `json:"name"`
	Role       string   `json:"role"`
	Namespace  string   `json:"namespace"`
	Addresses  []string `json:"addresses"`
	Interfaces []string `json:"interfaces"`
	Socket     string   `json:"socket"`
}

// Listed returns the hosts of a lab by name; none if it isn't listed.
func Listed(t *testing.T, name string) map[string]ListedHost {
	t.Helper()
	var labs []struct {
		Name  string       `json:"name"`
		Hosts []ListedHost `json:"hosts"`
	}
	Decode(t, Show(t, "lab", "list", "-o", "json"), &labs)
	hosts := map[string]ListedHost{}
	for _, l := range labs {
		if l.Name != name {
			continue
		}
		for _, h := range l.Hosts {
			hosts[h.Name] = h
		}
	}
	return hosts
}

// Decode parses JSON.
func Decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// Drain runs "drain" or "undrain" on every balancer.
func (l *Lab) Drain(t *testing.T, args ...string) {
	t.Helper()
	for _, h := range l.Hosts(netlab.Balancer) {
		Show(t, append(args, "--socket", h.Socket)...)
	}
}

// SignalAgent sends a signal to a balancer's agent and returns a channel that is
// closed when it has ended.
func (l *Lab) SignalAgent(t *testing.T, h *netlab.HostState, signal unix.Signal) <-chan struct{} {
	t.Helper()
	pidfd := l.Agent(t, h)
	if err := unix.PidfdSendSignal(pidfd, signal, nil, 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer unix.Close(pidfd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(time.Minute.Milliseconds()))
			if n > 0 || !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return ended
}

// Agent opens a balancer's agent as a file descriptor (pidfd_open(2)).
func (l *Lab) Agent(t *testing.T, h *netlab.HostState) (pidfd int) {
	t.Helper()
	pidfd, err := unix.PidfdOpen(l.State().Host(h.Name).Process("agent").PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pidfd
}

// Memory returns the resident set size of a process in bytes.
func Memory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// KillAgent kills a process of a balancer and waits until it has ended.
func (l *Lab) KillAgent(t *testing.T, h *netlab.HostState, process string) {
	t.Helper()
	if err := l.Kill(t.Context(), h.Name, process); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Dial(h.Socket).Status(t.Context()); err == nil {
		t.Fatalf("%s: the agent's socket still answers", h.Name)
	}
}

// StartAgent starts a balancer's agent again and waits until it has programmed
// its services with all backends, and has attached its program.
func (l *Lab) StartAgent(t *testing.T, h *netlab.HostState) {
	t.Helper()
	if err := l.Restart(t.Context(), h.Name, "agent"); err != nil {
		t.Fatal(err)
	}
	Until(t, h.Name+" is ready again", func() bool {
		if _, err := control.Dial(h.Socket).Status(t.Context()); err != nil {
			return false
		}
		s := Status(t, h)
		return int(s.Services.Programmed) == len(l.Topology.Services) && s.Backends.InUse == s.Backends.Total && len(s.DataPlane.Attachments) > 0
	})
}
