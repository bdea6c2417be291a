// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// pendingLimit is how long an object may be pending after all services are back.
const pendingLimit = time.Minute

// checkRestarts kills and restarts each service in turn while a client changes the load balancer "busy" and repeats
// calls that fail. Then nothing stays pending, and no connection to "web" has ended.
func (c *cloud) checkRestarts(t *testing.T) {
	t.Helper()
	connections := c.holdConnections(t)
	c.start(t, "churn", append(append([]string{"env"}, environment("tenant")...), c.bin("python"), "churn.py")...)
	for _, step := range []struct {
		host, process string
		await         func()
	}{
		{controller, "octavia-api", func() { c.awaitWeb(t, "octavia-api", octaviaAddress, "/") }},
		{controller, "octavia-agent", func() { c.awaitSockets(t) }},
		{controller, "apiserver", func() { c.awaitWeb(t, "the API server", "127.0.0.1:9576", "/readyz") }},
		{"lb1", "agent", func() { c.awaitBalancer(t, "lb1") }},
	} {
		c.awaitChange(t)
		if err := c.Kill(t.Context(), step.host, step.process); err != nil {
			t.Fatal(err)
		}
		if err := c.Restart(t.Context(), step.host, step.process); err != nil {
			t.Fatal(err)
		}
		step.await()
		c.awaitChange(t)
		t.Logf("%s is back; %d changes were made until then", step.process, c.changes(t))
	}
	if err := c.Stop(t.Context(), controller, "churn"); err != nil {
		t.Fatal(err)
	}
	c.awaitSettled(t)
	c.openstack(t, "loadbalancer delete --cascade --wait busy")
	connections.check(t)
}

// changes is the number of changes that the client has made.
func (c *cloud) changes(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "churn.log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "done")
}

// awaitChange waits until the client has made another change.
func (c *cloud) awaitChange(t *testing.T) {
	t.Helper()
	before := c.changes(t)
	if !harness.Within(2*pendingLimit, func() bool { return c.changes(t) > before }) {
		t.Fatalf("the client makes no change after %d", before)
	}
}

// awaitSockets waits until the driver agent listens: a new one replaces the sockets of the killed one.
func (c *cloud) awaitSockets(t *testing.T) {
	t.Helper()
	listens := func() bool {
		for _, name := range []string{"status.sock", "stats.sock", "get.sock"} {
			conn, err := net.Dial("unix", filepath.Join(c.dir, name))
			if err != nil {
				return false
			}
			_ = conn.Close()
		}
		return true
	}
	if !harness.Within(startLimit, listens) {
		t.Fatal("the driver agent doesn't listen")
	}
}

// awaitBalancer waits until a balancer follows the API server again.
func (c *cloud) awaitBalancer(t *testing.T, name string) {
	t.Helper()
	h := c.State().Host(name)
	harness.Until(t, name+" follows the API server", func() bool {
		status, err := netlab.Decode[observe.Status](control.Dial(h.Socket).Status(t.Context()))
		return err == nil && status.APIServer.Reachable
	})
}

// awaitSettled waits until no object is pending.
func (c *cloud) awaitSettled(t *testing.T) {
	t.Helper()
	began := time.Now()
	kinds := []string{"loadbalancers", "listeners", "pools"}
	var bad []string
	settled := harness.Within(pendingLimit, func() bool {
		bad = nil
		for _, kind := range kinds {
			found := map[string][]struct {
				Name         string
				Provisioning string `json:"provisioning_status"`
			}{}
			if err := c.get(t, kind, &found); err != nil {
				t.Fatal(err)
			}
			for _, part := range found[kind] {
				if part.Provisioning != "ACTIVE" {
					bad = append(bad, kind+" "+part.Name+": "+part.Provisioning)
				}
			}
		}
		return len(bad) == 0
	})
	if !settled {
		t.Fatalf("after %s: %q", pendingLimit, bad)
	}
	t.Logf("nothing is pending %s after the last restart", time.Since(began).Round(time.Second))
}

// connections are established ones that are used until they are checked.
type connections struct {
	stop  atomic.Bool
	ended chan error
	count int
}

// holdConnections opens connections to "web", which are used all the time.
func (c *cloud) holdConnections(t *testing.T) *connections {
	t.Helper()
	held := &connections{ended: make(chan error), count: 8}
	for i := range held.count {
		conn, err := c.Dial(t.Context(), "client", "tcp", net.JoinHostPort(c.web[i%len(c.web)].String(), "80"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() { held.ended <- held.use(harness.NewClient(conn)) }()
	}
	return held
}

// use sends requests until the connections are checked.
func (c *connections) use(client *harness.Client) error {
	for !c.stop.Load() {
		if err := client.Query(); err != nil {
			return err
		}
		_ = netlab.Sleep(context.Background(), harness.Pace)
	}
	return nil
}

// check ends the requests; none may have failed.
func (c *connections) check(t *testing.T) {
	t.Helper()
	c.stop.Store(true)
	var all []error
	for range c.count {
		all = append(all, <-c.ended)
	}
	if err := errors.Join(all...); err != nil {
		t.Errorf("established connections: %v", err)
	}
}
