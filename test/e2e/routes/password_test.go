// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
)

// Passwords, which only the kernel may have. Two of them are in the environment of the
// agent of lb1, by the names that they have here.
const (
	passwordInFile = "horse-battery-staple"
	passwordInEnv  = "correct-zebra-fountain"
	passwordWrong  = "tr0ub4dor-and-3"
	envPassword    = "FAIRLEAD_TEST_PASSWORD"
	envWrong       = "FAIRLEAD_TEST_WRONG"
	passwordFile   = "password"
)

// Sessions come up with passwords from files and from the environment, and no output of
// an agent contains any of them.
func (l *lab) checkPasswords(t *testing.T, r *frr) {
	for _, step := range []struct {
		password string
		from     bgp.Secret
	}{{passwordInEnv, bgp.Secret{Env: envPassword}}, {passwordInFile, bgp.Secret{File: passwordFile}}} {
		r.configure(t, "lb1", []string{"neighbor LB password " + step.password})
		l.configurePeer(t, "lb1", func(p *bgp.Peer) { p.Password = step.from })
		l.awaitSession(t, "lb1")
		l.checkSecret(t, "lb1")
	}
	if err := l.State().Host("lb1").ReplaceFile(passwordFile, passwordWrong+"\n"); err != nil { // for the next session
		t.Fatal(err)
	}
	r.configure(t, "lb1", []string{"no neighbor LB password", "neighbor LB password " + passwordInEnv})
	l.checkSaid(t, "lb1", l.Address("router"), "timed out: wrong password, or unreachable")
	l.checkSecret(t, "lb1")
}

// checkSecret searches all that an agent says for passwords.
func (l *lab) checkSecret(t *testing.T, balancer string) {
	t.Helper()
	h := l.State().Host(balancer)
	said := map[string]string{}
	for _, command := range []string{"status", "routes", "services", "drains"} {
		for _, format := range []string{"table", "json"} {
			said["fairlead "+command+" -o "+format] = l.Show(t, balancer, command, "-o", format)
		}
	}
	_, checked, wrong := harness.Fairlead(t, "config", "check", h.Directory+"/"+netlab.AgentFile, "-o", "json")
	said["fairlead config check"] = checked + wrong
	for _, path := range []string{"/metrics", "/", "/api/v1/status", "/api/v1/routes", "/api/v1/events", "/api/v1/history"} {
		text, err := l.Get(t.Context(), balancer, "http://127.0.0.1:"+harness.PagePort+path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		said[path] = text
	}
	for _, file := range []string{fmt.Sprintf("/proc/%d/cmdline", harness.Status(t, h).PID), h.Directory + "/agent.log"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said[file] = string(text)
	}
	for where, text := range said {
		for _, password := range []string{passwordInFile, passwordInEnv, passwordWrong} {
			if strings.Contains(text, password) {
				t.Errorf("%s has a password:\n%s", where, text)
			}
		}
		if text == "" {
			t.Errorf("%s says nothing", where)
		}
	}
}
