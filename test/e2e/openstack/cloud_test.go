// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// cloud is OpenStack in a lab.
type cloud struct {
	*harness.Lab
	// venv is the virtual environment of Python with OpenStack, dir the controller's directory.
	venv, dir string
	// site has the provider's package.
	site string
	// macs are the MAC addresses that Neutron gave to the servers.
	macs map[string]string
	// id is the identifier of the load balancer "web".
	id string
	// web are the VIPs of the load balancer "web", six the one of "six".
	web []netip.Addr
	six netip.Addr
	// token is the tenant's for Octavia's API.
	token string
}

// newCloud starts a lab and OpenStack in it. Networks have the VLANs of the lab, and servers the MAC
// addresses of their ports in Neutron.
func newCloud(t *testing.T, label string) *cloud {
	t.Helper()
	harness.NeedRoot(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run(); err != nil {
		t.Skip("OpenStack needs Python 3.11")
	}
	c := &cloud{venv: filepath.Join(cache, "fairlead", "openstack")}
	if _, err := os.Stat(filepath.Join(c.venv, "made-of")); err != nil {
		t.Fatalf("%v: scripts/install-deps.sh openstack installs it", err)
	}
	c.Lab = harness.BringUp(t, label, topology(t))
	c.dir = c.State().Host(controller).Directory
	c.site = filepath.Join(c.dir, "site")
	t.Cleanup(func() { c.logServices(t) })
	c.installProvider(t)
	c.writeFiles(t)
	c.startDatabase(t)
	c.startKeystone(t)
	c.startNeutron(t)
	c.seed(t)
	c.startAPIServer(t)
	c.startOctavia(t)
	return c
}

// services are the processes of the controller whose logs have the reason of a failure.
var services = []string{"apiserver", "octavia-agent", "octavia-api", "neutron", "keystone", "mariadb"}

// logServices logs the ends of the services' logs if the test has failed.
func (c *cloud) logServices(t *testing.T) {
	if !t.Failed() {
		return
	}
	const most = 20000
	for _, name := range services {
		text, err := os.ReadFile(filepath.Join(c.dir, name+".log"))
		t.Logf("%s: %v\n%s", name, err, text[max(0, len(text)-most):])
	}
}

// installProvider installs the package of octavia/ where Octavia's processes find it.
func (c *cloud) installProvider(t *testing.T) {
	t.Helper()
	source, err := filepath.Abs("../../../octavia")
	if err != nil {
		t.Fatal(err)
	}
	c.Run(t, controller, c.bin("pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index",
		"--target", c.site, source)
}

// bin is the path of an executable of OpenStack.
func (c *cloud) bin(name string) string { return filepath.Join(c.venv, "bin", name) }

// writeFiles writes the services' configuration.
func (c *cloud) writeFiles(t *testing.T) {
	t.Helper()
	names, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		filled := strings.NewReplacer("$DIR", c.dir, "$VENV", c.venv, "$API", apiAddress).Replace(string(text))
		if err := os.WriteFile(filepath.Join(c.dir, filepath.Base(name)), []byte(filled), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts a process of the controller. Octavia finds the provider in it.
func (c *cloud) start(t *testing.T, name string, args ...string) {
	t.Helper()
	if err := c.Start(t.Context(), controller, netlab.Process{Name: name, Args: args, Env: []string{"PYTHONPATH=" + c.site}}); err != nil {
		t.Fatal(err)
	}
}

// startWeb starts a service by the WSGI application in its file, and waits until it answers.
func (c *cloud) startWeb(t *testing.T, name, module, address, path string, more ...string) {
	t.Helper()
	c.start(t, name, append([]string{c.bin("gunicorn"), "--bind", address, "--no-control-socket", module + ":application"}, more...)...)
	c.awaitWeb(t, name, address, path)
}

// startLimit is how long a service of Python takes to start on a busy machine.
const startLimit = 2 * time.Minute

// awaitWeb waits until a service answers.
func (c *cloud) awaitWeb(t *testing.T, name, address, path string) {
	t.Helper()
	answers := func() bool {
		_, err := c.Get(t.Context(), controller, "http://"+address+path)
		return err == nil
	}
	if !harness.Within(startLimit, answers) {
		t.Fatalf("%s doesn't answer", name)
	}
}

// startDatabase makes and starts the database server, with a database for each service.
func (c *cloud) startDatabase(t *testing.T) {
	t.Helper()
	c.Run(t, controller, "mariadb-install-db", "--no-defaults", "--datadir="+c.dir+"/mariadb", "--user=root",
		"--auth-root-authentication-method=normal", "--skip-test-db")
	c.start(t, "mariadb", "mariadbd", "--defaults-file=my.cnf")
	harness.Until(t, "the database answers", func() bool {
		_, err := os.Stat(c.dir + "/mariadb.sock")
		return err == nil
	})
	c.Run(t, controller, "mariadb", "--no-defaults", "--socket="+c.dir+"/mariadb.sock", "--user=root", "--execute",
		"CREATE DATABASE keystone; CREATE DATABASE neutron; CREATE DATABASE octavia")
}

// Addresses of the services, in the controller's namespace.
const (
	keystoneAddress = "127.0.0.1:5000"
	neutronAddress  = "127.0.0.1:9696"
	octaviaAddress  = "127.0.0.1:9876"
)

func (c *cloud) startKeystone(t *testing.T) {
	t.Helper()
	manage := func(args ...string) {
		t.Helper()
		c.Run(t, controller, append([]string{c.bin("keystone-manage"), "--config-file", "keystone.conf"}, args...)...)
	}
	manage("db_sync")
	manage("fernet_setup", "--keystone-user", "root", "--keystone-group", "root")
	manage("credential_setup", "--keystone-user", "root", "--keystone-group", "root")
	url := "http://" + keystoneAddress + "/v3/"
	manage("bootstrap", "--bootstrap-password", "secret", "--bootstrap-admin-url", url, "--bootstrap-public-url", url,
		"--bootstrap-internal-url", url, "--bootstrap-region-id", "RegionOne")
	c.startWeb(t, "keystone", "keystone_wsgi", keystoneAddress, "/v3")
}

func (c *cloud) startNeutron(t *testing.T) {
	t.Helper()
	c.Run(t, controller, c.bin("neutron-db-manage"), "--config-file", "neutron.conf", "upgrade", "heads")
	c.startWeb(t, "neutron", "neutron_wsgi", neutronAddress, "/", "--threads", "8")
}

func (c *cloud) startAPIServer(t *testing.T) {
	t.Helper()
	c.start(t, "apiserver", "fairlead", "apiserver", "--listen", apiAddress, "--tls-cert", "server.crt", "--tls-key", "server.key",
		"--data", "loadbalancers.db", "--create", "--policy", "apiserver-policy.yaml", "--tokens", "tokens.yaml", "--metrics-address", "127.0.0.1:9576")
	c.awaitWeb(t, "the API server", "127.0.0.1:9576", "/readyz")
}

func (c *cloud) startOctavia(t *testing.T) {
	t.Helper()
	c.Run(t, controller, c.bin("octavia-db-manage"), "--config-file", "octavia.conf", "upgrade", "head")
	c.start(t, "octavia-agent", c.bin("octavia-driver-agent"), "--config-file", "octavia.conf")
	c.startWeb(t, "octavia-api", "octavia_wsgi", octaviaAddress, "/", "--threads", "8")
}

// environment has the credentials of a user of the project with the user's name.
func environment(user string) []string {
	return []string{
		"OS_AUTH_URL=http://" + keystoneAddress + "/v3", "OS_USERNAME=" + user, "OS_PASSWORD=secret", "OS_PROJECT_NAME=" + user,
		"OS_USER_DOMAIN_ID=default", "OS_PROJECT_DOMAIN_ID=default", "OS_IDENTITY_API_VERSION=3", "OS_REGION_NAME=RegionOne",
	}
}

// seed makes users, networks and ports, and gives the servers the MAC addresses of their ports.
func (c *cloud) seed(t *testing.T) {
	t.Helper()
	type network struct {
		VLAN  int                 `json:"vlan"`
		CIDRs []string            `json:"cidrs"`
		Ports map[string][]string `json:"ports,omitempty"`
	}
	ports := map[string][]string{}
	for _, h := range c.Hosts(netlab.Server) {
		for _, a := range h.Addresses {
			ports[h.Name] = append(ports[h.Name], a.String())
		}
	}
	wanted, err := json.Marshal(map[string]map[string]network{"networks": {
		"vips":    {VLAN: vipVLAN, CIDRs: []string{"10.1.1.0/24", "fd00:10:1:1::/64"}},
		"members": {VLAN: memberVLAN, CIDRs: []string{"10.0.4.0/24", "fd00:4::/64"}, Ports: ports},
	}})
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"env"}, environment("admin")...)
	args = append(args, "sh", "-c", `printf %s "$1" | exec "$0" seed.py`, c.bin("python"), string(wanted))
	harness.Decode(t, c.Run(t, controller, args...), &c.macs)
	for name, mac := range c.macs {
		c.setMAC(t, name, mac)
	}
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
	output := c.Run(t, controller, slices.Concat(limit, environment(user), []string{"sh", "-c", script, "sh", c.bin("openstack")}, commands)...)
	for _, failed := range []string{"(HTTP ", "Unable to ", "error: ", "Error"} {
		if strings.Contains(output, failed) {
			t.Fatalf("%q: %s", commands, output)
		}
	}
	return strings.TrimSpace(output)
}

// get decodes the answer of Octavia's API to the tenant.
func (c *cloud) get(t *testing.T, path string, into any) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+octaviaAddress+"/v2/lbaas/"+path, http.NoBody)
	if err != nil {
		return err
	}
	if c.token == "" {
		c.token = c.openstack(t, "token issue -f value -c id")
	}
	request.Header.Set("X-Auth-Token", c.token)
	client := http.Client{Timeout: harness.AnswerTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.Dial(ctx, controller, network, address)
		},
	}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}
