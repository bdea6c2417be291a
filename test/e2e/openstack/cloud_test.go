// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/openstack"
	"fairlead.io/fairlead/test/e2e/harness"
)

// cloud is OpenStack in a lab.
type cloud struct {
	*harness.Lab
	plane *openstack.Cloud
	// client is the tenant's.
	client *openstack.Client
	// id is the identifier of the load balancer "web".
	id string
	// web are the VIPs of the load balancer "web", six the one of "six".
	web []netip.Addr
	six netip.Addr
}

// newCloud starts OpenStack in a lab.
func newCloud(t *testing.T, label string) *cloud {
	t.Helper()
	harness.NeedRoot(t)
	plane, err := openstack.Up(t.Context(), openstack.Options{
		Labs: netlab.Labs{Dir: t.TempDir()}, Name: harness.LabName(label), Provider: "../../../octavia", Balancers: 2, Servers: 2,
	})
	if errors.Is(err, openstack.ErrOldPython) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &cloud{Lab: harness.Adopt(t, plane.Lab, plane.Topology), plane: plane, client: plane.NewClient("tenant")}
	t.Cleanup(func() {
		if t.Failed() {
			table, err := plane.Query(context.Background(), "SELECT id, name, provisioning_status, updated_at FROM octavia.load_balancer") // the test's is over
			t.Logf("load balancers: %v\n%s", err, table)
			t.Log(plane.Logs())
		}
	})
	return c
}

// openstack runs commands of the client as the tenant, one after the other, and returns their output. One process
// runs them all, as its start takes longer than a command.
func (c *cloud) openstack(t *testing.T, commands ...string) string {
	t.Helper()
	return c.openstackAs(t, "tenant", commands...)
}

func (c *cloud) openstackAs(t *testing.T, user string, commands ...string) string {
	t.Helper()
	limit := []string{"timeout", "600", "env"}                                             // --wait has none
	script := `openstack=$1; shift; printf '%s\n' "$@" | "$openstack" 2>&1 || test $? = 1` // always, at the end of its input
	output := c.Run(t, openstack.Controller, slices.Concat(
		limit, openstack.Environment(user), []string{"sh", "-c", script, "sh", c.plane.Bin("openstack")}, commands)...)
	for _, failed := range []string{"(HTTP ", "Unable to ", "error: ", "Error"} {
		if strings.Contains(output, failed) {
			t.Fatalf("%q: %s", commands, output)
		}
	}
	return strings.TrimSpace(output)
}
