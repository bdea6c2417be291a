// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// frr is a router: FRR's zebra and bgpd in a box.
type frr struct {
	*box
	name string // of the path space
	dir  string
}

// daemonDir is where Debian has FRR's daemons.
const daemonDir = "/usr/lib/frr"

// startFRR starts a router whose bgpd has the given configuration.
func startFRR(t *testing.T, bgpd string) *frr {
	t.Helper()
	r := &frr{
		box:  newBox(t, filepath.Join(daemonDir, "bgpd")),
		name: fmt.Sprintf("fairlead-%d-%s", os.Getpid(), strconv.FormatInt(time.Now().UnixNano(), 36)),
	}
	r.directory()
	r.start("zebra", "hostname router\n")
	r.await("zebra's socket", func() bool { _, err := os.Stat(filepath.Join(r.dir, "zserv.api")); return err == nil })
	r.start("bgpd", bgpd)
	return r
}

// directory makes what the daemons keep their files in.
func (r *frr) directory() {
	r.dir = filepath.Join("/var/run/frr", r.name)
	r.must(os.MkdirAll(r.dir, 0o755))
	r.t.Cleanup(func() { os.RemoveAll(r.dir) })
	account, err := user.Lookup("frr")
	r.must(err)
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	r.must(os.Chown(r.dir, uid, gid))
}

// start starts a daemon with a configuration.
func (r *frr) start(daemon, config string) {
	r.t.Helper()
	file := filepath.Join(r.dir, daemon+".conf")
	r.must(os.WriteFile(file, []byte(config), 0o644))
	log := filepath.Join(r.dir, daemon+".log")
	r.run(daemon, filepath.Join(daemonDir, daemon), "-N", r.name, "-f", file,
		"-i", filepath.Join(r.dir, daemon+".pid"), "-A", "127.0.0.1", "--log", "file:"+log)
	r.t.Cleanup(func() {
		if text, err := os.ReadFile(log); r.t.Failed() && err == nil {
			r.t.Logf("%s:\n%s", daemon, text)
		}
	})
	r.await(daemon, func() bool { _, err := os.Stat(filepath.Join(r.dir, daemon+".vty")); return err == nil })
}

// vtysh runs commands.
func (r *frr) vtysh(commands ...string) string {
	r.t.Helper()
	args := []string{"-N", r.name}
	for _, command := range commands {
		args = append(args, "-c", command)
	}
	out, err := exec.Command("vtysh", args...).Output()
	r.must(err)
	return string(out)
}

// notifications is how many the balancer has sent. FRR counts some of them twice.
func (r *frr) notifications() int {
	r.t.Helper()
	var neighbours map[string]struct {
		MessageStats struct {
			NotificationsRecv int `json:"notificationsRecv"`
		} `json:"messageStats"`
	}
	r.must(json.Unmarshal([]byte(r.vtysh("show bgp neighbor "+balancer4.String()+" json")), &neighbours))
	return neighbours[balancer4.String()].MessageStats.NotificationsRecv
}

// freeze stops a daemon without ending it.
func (r *frr) freeze(daemon string) {
	r.t.Helper()
	r.must(r.daemons[daemon].Process.Signal(syscall.SIGSTOP))
}
