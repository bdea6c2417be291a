// SPDX-License-Identifier: Apache-2.0

// Package openstack runs OpenStack's control plane in a lab: Keystone, Neutron, and Octavia with Fairlead's
// provider, and balancers that forward to members in Neutron's networks. lab/bench/openstack and
// test/e2e/openstack use it.
package openstack

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// Options are options of Up.
type Options struct {
	// Labs is where the lab is built, under Name.
	Labs netlab.Labs
	Name string
	// Provider is the folder of the provider's package, octavia of a checkout.
	Provider string
	// Balancers and Servers are their numbers.
	Balancers, Servers int
}

// Cloud is OpenStack in a lab.
type Cloud struct {
	*netlab.Lab
	Topology netlab.Topology
	// Dir is the controller's directory, with files and logs of its processes.
	Dir string
	// Subnets are the IDs of Neutron's subnets: vips4, vips6, members4, members6.
	Subnets map[string]string

	// venv is the virtual environment of Python with OpenStack, site has the provider's package.
	venv, site string
	// settings are further lines of [fairlead] in octavia.conf.
	settings string
}

// ErrOldPython says that this machine's Python is too old for OpenStack.
var ErrOldPython = errors.New("OpenStack needs Python 3.11")

// startLimit is how long a service of Python takes to start on a busy machine.
const startLimit = 2 * time.Minute

// Check returns an error if this machine can't run OpenStack.
func Check(ctx context.Context) error {
	_, err := environment(ctx)
	return err
}

// environment returns the virtual environment of Python with OpenStack.
func environment(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	if exec.CommandContext(ctx, "python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run() != nil {
		return "", ErrOldPython
	}
	venv := filepath.Join(cache, "fairlead", "openstack")
	if _, err := os.Stat(filepath.Join(venv, "made-of")); err != nil {
		return "", fmt.Errorf("OpenStack isn't installed (scripts/install-deps.sh openstack): %w", err)
	}
	return venv, nil
}

// Up starts a lab and OpenStack in it. Networks have the VLANs of the lab, and servers the MAC addresses of
// their ports in Neutron. On an error it removes everything.
func Up(ctx context.Context, o Options) (*Cloud, error) {
	venv, err := environment(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cloud{venv: venv, Subnets: map[string]string{}}
	return c, c.up(ctx, o, func() error { return c.start(ctx, o.Provider) }, "mariadbd")
}

// UpAPIServer starts a lab with the API server, without OpenStack. On an error it removes everything.
func UpAPIServer(ctx context.Context, o Options) (*Cloud, error) {
	c := &Cloud{}
	return c, c.up(ctx, o, func() error { return c.startAPIServer(ctx) })
}

// up starts a lab, and then the services in it, which need these programs.
func (c *Cloud) up(ctx context.Context, o Options, start func() error, programs ...string) (err error) {
	if c.Topology, err = topology(o.Balancers, o.Servers); err != nil {
		return err
	}
	if err := netlab.CheckPrograms(append(c.Topology.Programs(), programs...)...); err != nil {
		return err
	}
	if c.Lab, err = o.Labs.Up(ctx, o.Name, c.Topology); err != nil {
		return err
	}
	c.Dir = c.State().Host(Controller).Directory
	c.site = filepath.Join(c.Dir, "site")
	if err := start(); err != nil {
		return errors.Join(fmt.Errorf("%w\n%s", err, c.Logs()), c.Down(context.WithoutCancel(ctx)))
	}
	return nil
}

// start starts all services.
func (c *Cloud) start(ctx context.Context, provider string) error {
	if err := c.installProvider(ctx, provider); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		c.writeFiles, c.startDatabase, c.startKeystone, c.startNeutron, c.seed, c.startAPIServer, c.startOctavia,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Processes of the controller.
const (
	APIServer  = "apiserver"
	OctaviaAPI = "octavia-api"
	Keystone   = "keystone"
	Neutron    = "neutron"
	database   = "mariadb"
)

// DriverAgents are octavia-driver-agents of two hosts of Octavia. Both are processes of the controller, where the
// second one has another host name, and sockets of its own. octavia-api uses the first one's sockets. Up starts only
// that.
var DriverAgents = []string{"octavia-agent", "octavia-agent2"}

// Logs has the ends of the controller's logs, for the reason of a failure.
func (c *Cloud) Logs() string {
	const most = 20000
	var all strings.Builder
	for _, name := range append([]string{APIServer, OctaviaAPI, Neutron, Keystone, database}, DriverAgents...) {
		if text, err := os.ReadFile(filepath.Join(c.Dir, name+".log")); err == nil {
			fmt.Fprintf(&all, "%s:\n%s\n", name, text[max(0, len(text)-most):])
		}
	}
	return all.String()
}

// installProvider installs the provider's package where Octavia's processes find it.
func (c *Cloud) installProvider(ctx context.Context, provider string) error {
	source, err := filepath.Abs(provider)
	if err != nil {
		return err
	}
	_, err = c.Run(ctx, Controller, c.Bin("pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps",
		"--no-build-isolation", "--no-index", "--target", c.site, source)
	return err
}

// Bin is the path of an executable of OpenStack.
func (c *Cloud) Bin(name string) string { return filepath.Join(c.venv, "bin", name) }

// files are the services' configuration.
//
//go:embed files
var files embed.FS

// writeFiles writes the services' configuration. Each driver agent has one of its own.
func (c *Cloud) writeFiles(context.Context) error {
	entries, err := files.ReadDir("files")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := files.ReadFile("files/" + entry.Name())
		if err != nil {
			return err
		}
		suffixes := []string{""}
		if entry.Name() == "octavia.conf" {
			suffixes = append(suffixes, "2")
		}
		for _, suffix := range suffixes {
			filled := strings.NewReplacer(
				"$DIR", c.Dir, "$VENV", c.venv, "$API", APIAddress, "$AGENT", suffix, "$SETTINGS", c.settings,
			).Replace(string(text))
			name, extension, _ := strings.Cut(entry.Name(), ".")
			if err := os.WriteFile(filepath.Join(c.Dir, name+suffix+"."+extension), []byte(filled), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// Configure restarts Octavia, which has one driver agent, with these lines in [fairlead].
func (c *Cloud) Configure(ctx context.Context, lines ...string) error {
	c.settings = strings.Join(append(lines, ""), "\n")
	err := c.writeFiles(ctx)
	for _, process := range []string{OctaviaAPI, DriverAgents[0]} {
		err = errors.Join(err, c.Stop(ctx, Controller, process), c.Restart(ctx, Controller, process), c.Await(ctx, process))
	}
	return err
}

// startPython starts a process of the controller. Octavia finds the provider in it.
func (c *Cloud) startPython(ctx context.Context, name string, args ...string) error {
	return c.Start(ctx, Controller, netlab.Process{Name: name, Args: args, Env: []string{"PYTHONPATH=" + c.site}})
}

// startWeb starts a service by the WSGI application in its file, and waits until it answers.
func (c *Cloud) startWeb(ctx context.Context, name, module string, threads int) error {
	address, _, _ := strings.Cut(pages[name], "/")
	err := c.startPython(ctx, name, c.Bin("gunicorn"), "--bind", address, "--no-control-socket",
		"--threads", fmt.Sprint(threads), module+":application")
	if err != nil {
		return err
	}
	return c.Await(ctx, name)
}

// Addresses of the services, in the controller's namespace.
const (
	keystoneAddress = "127.0.0.1:5000"
	neutronAddress  = "127.0.0.1:9696"
	octaviaAddress  = "127.0.0.1:9876"
	// APIServerPage has the metrics of the API server.
	APIServerPage = "127.0.0.1:9576"
)

// pages are answered by services that are ready.
var pages = map[string]string{
	Keystone: keystoneAddress + "/v3", Neutron: neutronAddress + "/", OctaviaAPI: octaviaAddress + "/",
	APIServer: APIServerPage + "/readyz",
}

// Await waits until a process of the controller answers.
func (c *Cloud) Await(ctx context.Context, process string) error {
	answers := c.listens(process)
	if page := pages[process]; page != "" {
		answers = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := c.Get(ctx, Controller, "http://"+page)
			return err
		}
	} else if process == database {
		answers = func(context.Context) error {
			_, err := os.Stat(c.Dir + "/mariadb.sock")
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := netlab.Await(ctx, netlab.Poll, func() error { return answers(ctx) }); err != nil {
		return fmt.Errorf("%s doesn't answer: %w", process, err)
	}
	return nil
}

// listens returns a check that a driver agent answers: a new one replaces the sockets of a killed one. Each
// connection has a request, as Octavia's process for a connection that ends without one never ends.
func (c *Cloud) listens(agent string) func(context.Context) error {
	suffix := strings.TrimPrefix(agent, DriverAgents[0])
	return func(ctx context.Context) error {
		for _, name := range []string{"status", "stats", "get"} {
			if err := query(ctx, filepath.Join(c.Dir, name+suffix+".sock"), `{"object": "", "id": "", "listeners": []}`); err != nil {
				return err
			}
		}
		return nil
	}
}

// query sends a request to a socket of a driver agent, and waits for its answer.
func query(ctx context.Context, socket, request string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := fmt.Fprintf(conn, "%d\n%s", len(request), request); err != nil {
		return err
	}
	_, err = io.ReadAll(conn)
	return err
}

// startDatabase makes and starts the database server, with a database for each service.
func (c *Cloud) startDatabase(ctx context.Context) error {
	_, err := c.Run(ctx, Controller, "mariadb-install-db", "--no-defaults", "--datadir="+c.Dir+"/mariadb", "--user=root",
		"--auth-root-authentication-method=normal", "--skip-test-db")
	if err == nil {
		err = c.startPython(ctx, database, "mariadbd", "--defaults-file=my.cnf")
	}
	if err == nil {
		err = c.Await(ctx, database)
	}
	if err != nil {
		return err
	}
	_, err = c.Query(ctx, "CREATE DATABASE keystone; CREATE DATABASE neutron; CREATE DATABASE octavia")
	return err
}

// Query sends statements to the database server, and returns the values of the answers, a row a line.
func (c *Cloud) Query(ctx context.Context, statements string) (string, error) {
	return c.Run(ctx, Controller, "mariadb", "--no-defaults", "--socket="+c.Dir+"/mariadb.sock", "--user=root",
		"--batch", "--skip-column-names", "--execute", statements)
}

func (c *Cloud) startKeystone(ctx context.Context) error {
	url := "http://" + keystoneAddress + "/v3/"
	for _, args := range [][]string{
		{"db_sync"},
		{"fernet_setup", "--keystone-user", "root", "--keystone-group", "root"},
		{"credential_setup", "--keystone-user", "root", "--keystone-group", "root"},
		{"bootstrap", "--bootstrap-password", "secret", "--bootstrap-admin-url", url, "--bootstrap-public-url", url,
			"--bootstrap-internal-url", url, "--bootstrap-region-id", "RegionOne"},
	} {
		manage := []string{c.Bin("keystone-manage"), "--config-file", "keystone.conf"}
		if _, err := c.Run(ctx, Controller, append(manage, args...)...); err != nil {
			return err
		}
	}
	return c.startWeb(ctx, Keystone, "keystone_wsgi", 1)
}

func (c *Cloud) startNeutron(ctx context.Context) error {
	_, err := c.Run(ctx, Controller, c.Bin("neutron-db-manage"), "--config-file", "neutron.conf", "upgrade", "heads")
	if err != nil {
		return err
	}
	return c.startWeb(ctx, Neutron, "neutron_wsgi", 8)
}

func (c *Cloud) startAPIServer(ctx context.Context) error {
	err := c.startPython(ctx, APIServer, "fairlead", "apiserver", "--listen", APIAddress,
		"--tls-cert", "server.crt", "--tls-key", "server.key", "--data", "loadbalancers.db", "--create",
		"--policy", "apiserver-policy.yaml", "--tokens", "tokens.yaml", "--metrics-address", APIServerPage)
	if err != nil {
		return err
	}
	return c.Await(ctx, APIServer)
}

func (c *Cloud) startOctavia(ctx context.Context) error {
	_, err := c.Run(ctx, Controller, c.Bin("octavia-db-manage"), "--config-file", "octavia.conf", "upgrade", "head")
	if err != nil {
		return err
	}
	if err := c.StartDriverAgent(ctx, 0); err != nil {
		return err
	}
	return c.startWeb(ctx, OctaviaAPI, "octavia_wsgi", 8)
}

// StartDriverAgent starts one of DriverAgents.
func (c *Cloud) StartDriverAgent(ctx context.Context, n int) error {
	args := []string{c.Bin("octavia-driver-agent"), "--config-file", "octavia.conf"}
	if n > 0 {
		args[2] = "octavia2.conf"
		args = append([]string{"unshare", "--uts", "sh", "-c", `hostname controller2 && exec "$@"`, "sh"}, args...)
	}
	if err := c.startPython(ctx, DriverAgents[n], args...); err != nil {
		return err
	}
	return c.Await(ctx, DriverAgents[n])
}

// Environment has the credentials of a user of the project with the user's name, for OpenStack's programs.
func Environment(user string) []string {
	return []string{
		"OS_AUTH_URL=http://" + keystoneAddress + "/v3", "OS_IDENTITY_API_VERSION=3", "OS_REGION_NAME=RegionOne",
		"OS_USERNAME=" + user, "OS_PASSWORD=secret", "OS_USER_DOMAIN_ID=default",
		"OS_PROJECT_NAME=" + user, "OS_PROJECT_DOMAIN_ID=default",
	}
}

// seed makes users, networks and ports, and gives the servers the MAC addresses of their ports.
func (c *Cloud) seed(ctx context.Context) error {
	type network struct {
		VLAN  int                 `json:"vlan"`
		CIDRs []string            `json:"cidrs"`
		Ports map[string][]string `json:"ports,omitempty"`
	}
	ports := map[string][]string{}
	for _, h := range c.State().Hosts {
		if h.Role != netlab.Server {
			continue
		}
		for _, a := range h.Addresses {
			ports[h.Name] = append(ports[h.Name], a.String())
		}
	}
	networks, err := json.Marshal(map[string]network{
		"vips":    {VLAN: VIPVLAN, CIDRs: []string{"10.1.0.0/16", "fd00:10:1:1::/64"}},
		"members": {VLAN: MemberVLAN, CIDRs: []string{"10.0.4.0/24", "fd00:4::/64"}, Ports: ports},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "networks.json"), networks, 0o600); err != nil {
		return err
	}
	args := slices.Concat([]string{"env"}, Environment("admin"), []string{c.Bin("python"), "seed.py"})
	made, err := c.Run(ctx, Controller, args...)
	if err != nil {
		return err
	}
	var found struct {
		MACs    map[string]string
		Subnets map[string]string
	}
	if err := json.Unmarshal([]byte(made), &found); err != nil {
		return fmt.Errorf("seed.py: %w: %s", err, made)
	}
	c.Subnets = found.Subnets
	for name, mac := range found.MACs {
		err = errors.Join(err, c.SetMAC(ctx, name, mac))
	}
	return err
}

// SetMAC changes the MAC address of a server.
func (c *Cloud) SetMAC(ctx context.Context, server, mac string) error {
	_, err := c.Run(ctx, server, "ip", "link", "set", "eth0", "address", mac)
	return err
}

// AddVIPs has a server accept packets for VIPs: it adds a prefix to its loopback interface.
func (c *Cloud) AddVIPs(ctx context.Context, server string, vips netip.Prefix) error {
	_, err := c.Run(ctx, server, "ip", "address", "add", vips.String(), "dev", "lo")
	return err
}

// Sync runs fairlead-octavia-sync, and returns its lines: none if all agrees.
func (c *Cloud) Sync(ctx context.Context, args ...string) (string, error) {
	program := "import sys; from fairlead_octavia_provider.sync import main; sys.exit(main(sys.argv[1:]))"
	command := []string{"env", "PYTHONPATH=" + c.site, c.Bin("python"), "-c", program, "--config-file", "octavia.conf"}
	return c.Run(ctx, Controller, append(command, args...)...)
}
