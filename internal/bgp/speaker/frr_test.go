// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead.io/fairlead/test/await"
)

// frr is a router: FRR's zebra and bgpd in a box.
type frr struct {
	*box
	name string // of the path space
	dir  string
}

// daemonDir is where Debian has FRR's daemons.
const daemonDir = "/usr/lib/frr"

// bgpd is FRR's configuration of AS asn, with a neighbour that is the balancer's
// address, and some lines about it.
func bgpd(asn string, balancer netip.Addr, lines ...string) string {
	return "router bgp " + asn + `
 bgp router-id 10.0.2.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 bgp graceful-restart
 timers bgp 1 3
` + besides(balancer, lines...)
}

// besides is one more neighbour.
func besides(balancer netip.Addr, lines ...string) string {
	of := " neighbor " + balancer.String() + " "
	return of + strings.Join(lines, "\n"+of) + `
 address-family ipv4 unicast
 ` + of + `activate
 exit
 address-family ipv6 unicast
 ` + of + `activate
 exit
`
}

// startFRR starts a router at the first place, whose bgpd has the given
// configuration.
func startFRR(t *testing.T, bgpd string) *frr {
	t.Helper()
	needs(t, filepath.Join(daemonDir, "bgpd"))
	return startFRRIn(newBox(t, first), bgpd)
}

// startPassiveFRR starts a router of AS 65000 that waits for the balancer's connection over IPv4.
func startPassiveFRR(t *testing.T) *frr {
	t.Helper()
	return startFRR(t, bgpd("65000", balancer4, "remote-as 65021", "passive"))
}

// startFRRIn starts a router in a box.
func startFRRIn(in *box, bgpd string) *frr {
	in.t.Helper()
	r := &frr{
		box:  in,
		name: fmt.Sprintf("fairlead-%d-%s", os.Getpid(), strconv.FormatInt(time.Now().UnixNano(), 36)),
	}
	r.directory()
	r.start("zebra", "hostname router\n")
	await.True(r.t, "zebra's socket", func() bool { _, err := os.Stat(filepath.Join(r.dir, "zserv.api")); return err == nil })
	r.start("bgpd", bgpd)
	return r
}

// directory makes the directory of the daemons' files.
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
	await.True(r.t, daemon, func() bool { _, err := os.Stat(filepath.Join(r.dir, daemon+".vty")); return err == nil })
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

// seen is FRR's state of a neighbour.
type seen struct {
	HoldTime int `json:"bgpTimerHoldTimeMsecs"`
	Messages struct {
		NotificationsRecv int `json:"notificationsRecv"` // some of them counted twice
		UpdatesRecv       int `json:"updatesRecv"`
	} `json:"messageStats"`
}

// neighbour returns the router's state of the balancer at its IPv4 address.
func (r *frr) neighbour() seen {
	r.t.Helper()
	var neighbours map[string]seen
	r.must(json.Unmarshal([]byte(r.vtysh("show bgp neighbor "+balancer4.String()+" json")), &neighbours))
	return neighbours[balancer4.String()]
}

// freeze stops a daemon without ending it.
func (r *frr) freeze(daemon string) {
	r.t.Helper()
	r.must(r.daemons[daemon].Process.Signal(syscall.SIGSTOP))
}
