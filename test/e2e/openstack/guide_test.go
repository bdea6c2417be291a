// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/lab/openstack"
	"fairlead.io/fairlead/test/await"
	"fairlead.io/fairlead/test/e2e/harness"
	"fairlead.io/fairlead/test/guide"
)

// TestGuide plays docs/guides/openstack.md, from an Octavia that doesn't know the provider to an answered request. The
// differences: the package is installed, the token of the provider and the authority of the API server's certificate
// are in the controller's directory, the router has a password, and has the balancers' addresses in the VLAN of VIPs as
// neighbours, as not each kernel of tests has VLAN devices.
func TestGuide(t *testing.T) {
	blocks := guide.Blocks(t, "../../../docs/guides/openstack.md")
	c := newCloud(t, "guide")
	c.clear(t)
	for _, b := range blocks {
		t.Logf("%s: %s %s", b, b.Language, b.Target)
		if err := c.play(t, b); err != nil {
			t.Fatalf("%s: %v\n%s", b, err, b.Text)
		}
	}
	c.shell(t, openstack.Controller, "tenant", "openstack loadbalancer delete --cascade --wait web")
	c.checkNoneServed(t)
}

// clear removes the objects and files that the guide makes.
func (c *cloud) clear(t *testing.T) {
	t.Helper()
	c.shell(t, openstack.Controller, "admin", "openstack port delete server1 server2 && openstack network delete vips members")
	stop := func(host, process string) {
		if err := c.Stop(t.Context(), host, process); err != nil {
			t.Fatal(err)
		}
	}
	stop(openstack.Controller, openstack.APIServer)
	for _, h := range c.Hosts(netlab.Balancer) {
		stop(h.Name, "agent")
		c.Run(t, h.Name, "rm", "-r", "state")
	}
	c.Run(t, openstack.Controller, "rm", "loadbalancers.db", "tokens.yaml", "octavia.token")
}

// play follows a block as a reader would.
func (c *cloud) play(t *testing.T, b guide.Block) error {
	switch b.Language + " " + b.Target {
	case "sh controller":
		if b.Text == "fairlead-octavia-sync\n" {
			differ, err := c.plane.Sync(t.Context())
			if differ != "" {
				err = errors.Join(err, fmt.Errorf("load balancers differ: %s", differ))
			}
			return err
		}
		c.shell(t, openstack.Controller, "", b.Text)
	case "sh controller background":
		return c.startAPIServer(t, b.Text)
	case "yaml policy.yaml":
		return os.WriteFile(filepath.Join(c.plane.Dir, b.Target), []byte(b.Text), 0o600)
	case "yaml fairlead.yaml":
		return c.startAgents(t, b.Text)
	case "ini octavia.conf":
		text := strings.NewReplacer("/etc/octavia/fairlead.token", c.plane.Dir+"/octavia.token",
			"/etc/octavia/fairlead-ca.crt", c.plane.Dir+"/server.crt").Replace(b.Text)
		return c.plane.Configure(t.Context(), text)
	case "sh admin":
		c.shell(t, openstack.Controller, "admin", b.Text)
		if strings.Contains(b.Text, "subnet create") {
			c.makePorts(t)
		}
	case "yaml cloud-init.yaml":
		return c.boot(t, b.Text)
	case "sh tenant":
		c.playTenant(t, b)
	case "sh client":
		return c.request(t, b.Text)
	default:
		// TestKolla renders the templates; the others have no part in a load balancer of the lab.
		if !slices.Contains([]string{"", "lb1", "template-override.j2", "globals.yml", "values.yaml"}, b.Target) {
			return fmt.Errorf("unknown target %q", b.Target)
		}
	}
	return nil
}

// playTenant runs a script of the tenant's, until its output is the guide's.
func (c *cloud) playTenant(t *testing.T, b guide.Block) {
	t.Helper()
	if b.Shown == "" {
		c.shell(t, openstack.Controller, "tenant", b.Text)
		return
	}
	var err error
	if !await.Holds(func() bool {
		err = guide.Compare(b.Shown, c.shell(t, openstack.Controller, "tenant", b.Text))
		return err == nil
	}) {
		t.Fatalf("%s: %v", b, err)
	}
}

// request repeats a client's script until it succeeds: the router learns the route in a moment.
func (c *cloud) request(t *testing.T, script string) error {
	t.Helper()
	var err error
	if !await.Holds(func() bool {
		_, err = c.Lab.Lab.Run(t.Context(), "client", "sh", "-c", script)
		return err == nil
	}) {
		return err
	}
	return nil
}

// shell runs a script in a host with the credentials of a user of OpenStack, and returns its output.
func (c *cloud) shell(t *testing.T, host, user, script string) string {
	t.Helper()
	const limit = "600" // seconds; --wait has none
	path := "PATH=" + filepath.Dir(c.plane.Bin("openstack")) + ":" + os.Getenv("PATH")
	return c.Run(t, host, slices.Concat([]string{"timeout", limit, "env", path}, openstack.Environment(user), []string{"sh", "-ec", script})...)
}

// startAPIServer starts the guide's API server.
func (c *cloud) startAPIServer(t *testing.T, command string) error {
	err := c.Start(t.Context(), openstack.Controller, netlab.Process{Name: "guide", Args: []string{"sh", "-c", "exec " + command}})
	harness.Until(t, "the API server listens", func() bool {
		conn, err := c.Dial(t.Context(), openstack.Controller, "tcp", openstack.APIAddress)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return err
}

// startAgents starts the balancers' agents with the guide's configuration.
func (c *cloud) startAgents(t *testing.T, text string) error {
	text = strings.Replace(text, "{address: 10.0.2.1, asn: 65000}", "{address: 10.0.2.1, asn: 65000, ttlSecurity: 1, passwordFile: bgp.password}", 1)
	for _, h := range c.Hosts(netlab.Balancer) {
		own := text
		if h.Name == "lb2" {
			own = strings.NewReplacer("lb1", "lb2", "10.0.2.11", "10.0.2.12", "10.0.5.11", "10.0.5.12").Replace(text)
		}
		c.Write(t, &h, own)
		for from, to := range map[string]string{
			filepath.Join(c.plane.Dir, h.Name+".token"): h.Name + ".token", filepath.Join(c.plane.Dir, "server.crt"): "ca.crt",
		} {
			content, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(h.Directory, to), content, 0o600)
			}
			if err != nil {
				return err
			}
		}
		if err := c.Restart(t.Context(), h.Name, "agent"); err != nil {
			return err
		}
	}
	return nil
}

// makePorts makes the ports of the guide's servers in Neutron, which gives them MAC addresses.
func (c *cloud) makePorts(t *testing.T) {
	t.Helper()
	for _, h := range c.Hosts(netlab.Server) {
		mac := c.shell(t, openstack.Controller, "admin", fmt.Sprintf(
			"openstack port create --project tenant --network members --fixed-ip subnet=members4,ip-address=%s -f value -c mac_address %s",
			h.Addresses[0], h.Name))
		if err := c.plane.SetMAC(t.Context(), h.Name, strings.TrimSpace(mac)); err != nil {
			t.Fatal(err)
		}
	}
}

// boot runs the commands of cloud-init's user data in the servers.
func (c *cloud) boot(t *testing.T, text string) error {
	var data struct{ Bootcmd []string }
	if err := yaml.UnmarshalStrict([]byte(text), &data); err != nil {
		return err
	}
	for _, h := range c.Hosts(netlab.Server) {
		for _, command := range data.Bootcmd {
			c.Run(t, h.Name, "sh", "-ec", command)
		}
	}
	return nil
}
