// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.io/fairlead/lab/netlab"
)

// All names in the services' files are replaced, and each driver agent has sockets of its own.
func TestFiles(t *testing.T) {
	c := &Cloud{Dir: t.TempDir(), venv: "/venv", settings: "ports_interval = 60\n"}
	if err := c.writeFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	written, err := filepath.Glob(filepath.Join(c.Dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range written {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.Index(string(text), "$"); at >= 0 {
			t.Errorf("%s has %.20s", name, text[at:])
		}
		base := filepath.Base(name)
		if suffix, found := strings.CutSuffix(strings.TrimPrefix(base, "octavia"), ".conf"); found && strings.HasPrefix(base, "octavia") {
			for _, want := range []string{"/status" + suffix + ".sock\n", "/get" + suffix + ".sock\n", "\nports_interval = 60\n"} {
				if !strings.Contains(string(text), want) {
					t.Errorf("%s lacks %q", base, want)
				}
			}
		}
	}
	if len(written) != 10 {
		t.Errorf("%d files: %v", len(written), written)
	}
}

// The nth balancer is the next hop of the router, and follows the API server with a token of its own.
func TestTopology(t *testing.T) {
	made, err := topology(2, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lb1", "lb2"} {
		files := made.Host(name).Files
		if !strings.HasPrefix(files["node.token"], name+".") || !strings.Contains(files[netlab.AgentFile], APIAddress) {
			t.Errorf("%s has\n%s\n%s", name, files["node.token"], files[netlab.AgentFile])
		}
	}
	if made.Host("server3") == nil || made.Host("server4") != nil {
		t.Error("there aren't three servers")
	}
	for vip, want := range map[string]string{"10.1.1.1": "10.0.5.11 10.0.5.12", "fd00:10:1:1::1": "fd00:5::11 fd00:5::12"} {
		if got := strings.Join(NextHops(2, netip.MustParseAddr(vip)), " "); got != want {
			t.Errorf("%s: next hops are %s, want %s", vip, got, want)
		}
	}
}
