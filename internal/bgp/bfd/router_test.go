// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/await"
)

// router is a routing daemon in a lab's host.
type router struct {
	t    *testing.T
	lab  *netlab.Lab
	host string
	// dir is where the daemons, which give up root's rights, keep their files.
	dir       string
	processes []netlab.Process
	// sockets appear in dir, in this order, when the processes are ready.
	sockets []string
	// ask prints the daemon's BFD sessions.
	ask []string
}

// needDaemons skips a test where a router isn't installed. Who may install it, as
// "make test" does, has it.
func needDaemons(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		_, err := exec.LookPath(p)
		switch {
		case err != nil && os.Geteuid() == 0:
			t.Fatalf("no router to speak with: %v: scripts/install-deps.sh test", err)
		case err != nil:
			t.Skipf("no router to speak with: %v", err)
		}
	}
}

const frrDir = "/usr/lib/frr/"

// frr runs zebra, bfdd and bgpd. The configurations are of bfdd and of bgpd.
func frr(t *testing.T, lab *netlab.Lab, host, bfdd, bgpd string) *router {
	t.Helper()
	needDaemons(t, frrDir+"zebra", frrDir+"bfdd", frrDir+"bgpd", "vtysh")
	// FRR keeps the sockets of a path space here and nowhere else.
	space := lab.State().Name + "-" + host
	r := newRouter(t, lab, host, "/var/run/frr/"+space, "frr")
	r.ask = []string{"vtysh", "-N", space, "-c", "show bfd peers"}
	// A daemon that does not find zebra tries again 10 s later.
	r.sockets = []string{"zserv.api", "bfdd.vty", "bgpd.vty"}
	for _, d := range []struct{ name, config string }{{"zebra", ""}, {"bfdd", bfdd}, {"bgpd", bgpd}} {
		file := r.write(d.name+".conf", d.config)
		r.processes = append(r.processes, netlab.Process{Name: d.name, Args: []string{
			frrDir + d.name, "-N", space, "-f", file, "-i", filepath.Join(r.dir, d.name+".pid"), "-A", "127.0.0.1", "--log", "stdout",
		}})
	}
	return r
}

// bird runs BIRD.
func bird(t *testing.T, lab *netlab.Lab, host, config string) *router {
	t.Helper()
	needDaemons(t, "bird", "birdc")
	dir, err := os.MkdirTemp("/run", "bfd-bird") //nolint:usetesting // BIRD gives up root, and may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	r := newRouter(t, lab, host, dir, "bird")
	r.sockets = []string{"bird.ctl"}
	socket := filepath.Join(dir, r.sockets[0])
	r.ask = []string{"birdc", "-s", socket, "show", "bfd", "sessions"}
	r.processes = []netlab.Process{{Name: "bird", Args: []string{
		"bird", "-f", "-u", "bird", "-g", "bird", "-c", r.write("bird.conf", config), "-s", socket,
	}}}
	return r
}

// newRouter makes the directory and gives it to the daemons' user.
func newRouter(t *testing.T, lab *netlab.Lab, host, dir, owner string) *router {
	t.Helper()
	r := &router{t: t, lab: lab, host: host, dir: dir}
	u, err := user.Lookup(owner)
	if err != nil {
		t.Fatal(err)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	err = os.MkdirAll(dir, 0o755)
	if err = errors.Join(err, uidErr, gidErr, os.Chown(dir, uid, gid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *router) write(name, text string) string {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return file
}

// start starts the daemons; the lab stops them.
func (r *router) start() {
	r.t.Helper()
	for i, p := range r.processes {
		socket := filepath.Join(r.dir, r.sockets[i])
		if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.t.Fatal(err)
		}
		if err := r.lab.Start(context.Background(), r.host, p); err != nil {
			r.t.Fatal(err)
		}
		await.True(r.t, p.Name+" is ready", func() bool { _, err := os.Lstat(socket); return err == nil })
	}
	r.t.Cleanup(func() {
		if r.t.Failed() {
			text, err := r.show()
			r.t.Logf("%s: %v\n%s", r.host, err, text)
		}
	})
}

// kill kills the daemons, and returns when their ports are free.
func (r *router) kill() {
	r.t.Helper()
	for _, p := range r.processes {
		if err := r.lab.Kill(context.Background(), r.host, p.Name); err != nil {
			r.t.Fatal(err)
		}
	}
}

// show returns the router's output about its sessions.
func (r *router) show() (string, error) {
	text, err := exec.Command(r.ask[0], r.ask[1:]...).Output()
	return string(text), err
}

// sees reports whether the router has a session with a peer in that state; FRR
// and BIRD write it differently.
func (r *router) sees(peer string, up bool) bool {
	text, err := r.show()
	if err != nil {
		return false
	}
	seen := false
	for block := range strings.SplitSeq(strings.ReplaceAll(text, "\n"+peer, "\npeer "+peer), "peer ") {
		if !strings.HasPrefix(block, peer+" ") && !strings.HasPrefix(block, peer+"\n") {
			continue
		}
		seen = seen || strings.Contains(block, "Status: up") || strings.Contains(strings.SplitN(block, "\n", 2)[0], " Up ")
	}
	return seen == up
}
