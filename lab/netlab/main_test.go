// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestMain makes the test binary stand in for the executables that labs start, and
// for a process that creates a lab and can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 {
		os.Exit(runTests(m))
	}
	var err error
	switch os.Args[1] + " " + os.Args[2] {
	case "lab echo":
		err = echoMain(os.Args[3:])
	case "lab create":
		_, err = Labs{Dir: os.Args[3]}.Up(context.Background(), os.Args[4], unanswered())
	default:
		os.Exit(runTests(m))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runTests runs the tests with this binary as fairlead and fairlab in PATH.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "netlab-bin-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	for _, name := range []string{fairlead, fairlab} {
		err = errors.Join(err, os.Symlink(self, filepath.Join(dir, name)))
	}
	if err = errors.Join(err, os.Setenv("PATH", dir+":"+os.Getenv("PATH"))); err != nil {
		panic(err)
	}
	return m.Run()
}

func echoMain(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("echo", flag.ContinueOnError)
	name := flags.String("name", "", "")
	var addresses []netip.AddrPort
	flags.Func("listen", "", func(text string) error {
		a, err := netip.ParseAddrPort(text)
		addresses = append(addresses, a)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	return Echo(ctx, *name, addresses)
}

var labCount atomic.Uint32

// newLabName returns a name that no other test run on this machine uses.
func newLabName() string { return fmt.Sprintf("t%d-%d", os.Getpid(), labCount.Add(1)) }

// newLabs returns a place for labs, all of which are taken down in the end.
func newLabs(t *testing.T) Labs {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	labs := Labs{Dir: t.TempDir(), Progress: func(line string) { t.Log(line) }}
	t.Cleanup(func() {
		states, err := labs.List()
		if err != nil {
			t.Error(err)
		}
		for _, s := range states {
			takeDown(t, labs, s.Name)
		}
	})
	return labs
}

func takeDown(t *testing.T, labs Labs, name string) {
	t.Helper()
	lab, err := labs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Down(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func bringUp(t *testing.T, labs Labs, topology Topology) *Lab {
	t.Helper()
	lab, err := labs.Up(t.Context(), newLabName(), topology)
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// plain is a site whose router spreads the VIPs over the servers themselves,
// without balancers.
func plain(servers int) Topology {
	d := newDrawing("plain")
	s := sited(ECMPOptions{Balancers: servers, Servers: servers})
	s.draw(d)
	router := d.Host("router")
	for i := range router.Routes {
		for n := range servers {
			router.Routes[i].Gateways[n] = addresses(serviceNetwork, serverNumber+n+1)[i]
		}
	}
	return d.finish()
}

// unanswered is plain with a probe without an answer.
func unanswered() Topology {
	topology := plain(1)
	topology.Probes[0].Answers = []string{"missing"}
	return topology
}
