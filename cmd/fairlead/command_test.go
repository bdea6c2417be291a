// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/host/preflight"
)

// refused has the status and the output of a command that is refused.
type refused struct {
	status int
	texts  []string
}

// An impossible command is refused before it changes anything; 2 is for errors of the
// command line itself.
func TestCommandsRefuse(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte(strings.Replace(testConfig, "port: 80\n", "port: 0\n    prot: tcp\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte(testConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "taken.sock")
	claim, err := control.ClaimSocket(taken)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Release()

	badPort, badField := bad+":7:11: services[0].port: ", bad+":8:5: services[0].prot: "
	for line, want := range map[string]refused{
		"agent --config " + dir + "/none":                              {1, []string{"fairlead: ", "no such file"}},
		"agent --config " + bad + " --socket " + dir + "/s":            {1, []string{badPort, badField}},
		"agent --config " + bad + " --socket " + dir + "/s --remove":   {1, []string{badPort, badField}},
		"agent --config " + good + " --balancer-pods=shop=10.1.1.0/24": {2, []string{"--balancer-pods: only with --kubernetes"}},
		"agent --kubernetes --balancer-pods shop":                      {2, []string{`--balancer-pods: "shop": want NAMESPACE=PREFIX`}},
		"agent --config " + good + " --control-kubeconfig a":           {2, []string{"--control-kubeconfig: only with --kubernetes"}},
		"agent --kubernetes --remove-on-exit":                          {2, []string{"--remove-on-exit: not with --kubernetes"}},
		"agent --config " + good + " --socket " + taken:                {1, []string{"another agent has it"}},
		"agent --remove --pin-dir " + dir + " --socket " + taken:       {1, []string{"another agent has it"}},
		"apiserver": {2, []string{"--tokens, --client-ca: neither"}},
		"apiserver --tokens " + dir + "/none --tls-cert c":                 {2, []string{"--tls-cert, --tls-key: "}},
		"apiserver --client-ca c":                                          {2, []string{"--client-ca: only with --tls-cert"}},
		"apiserver --tokens t --rate 0":                                    {2, []string{"--rate 0: "}},
		"apiserver --tokens t --kubeconfig " + dir + "/none":               {1, []string{"kubeconfig: ", "no such file"}},
		"apiserver --tokens t --data d --kubeconfig k":                     {2, []string{"--data, --kubeconfig: "}},
		"apiserver --tokens t --data d":                                    {2, []string{"--data, --policy: "}},
		"apiserver --tokens t --policy p":                                  {2, []string{"--data, --policy: "}},
		"apiserver --tokens t --data " + dir + "/none --policy p":          {1, []string{"there is no such file, or it is empty: --create makes one"}},
		"apiserver --tokens t --create":                                    {2, []string{"--create, --replace: only with --data"}},
		"apiserver --tokens t --data d --policy p --metrics-secure":        {2, []string{"--data: not with --metrics-secure"}},
		"apiserver --tokens t --data d --create --policy " + dir + "/none": {1, []string{"policy: ", "no such file"}},
		"apiserver --tokens t --data d --create --policy " + bad:           {1, []string{"policy: " + bad, `unknown field "node"`}},
		"apiserver token a":                                                {2, []string{"project", "node", "required"}},
		"apiserver token a --project web --node n":                         {2, []string{"nodes: not with projects"}},
		"apiserver token A --project web":                                  {2, []string{"id: want"}},
		"apiserver token a --project ../web":                               {2, []string{"projects[0]: "}},
		"apiserver token a --project web --lifetime -1h":                   {2, []string{"--lifetime -1h0m0s: "}},
		"agent --log-format xml":                                           {2, []string{"want text or json"}},
		"controller":                                                       {2, []string{"--namespace: none"}},
		"controller --namespace a --kubeconfig " + dir + "/none":           {1, []string{"kubeconfig: ", "no such file"}},
		"node --interface lo --vip 10.1.1.1":                               {2, []string{`"balancer" not set`}},
		"node --interface lo --balancer 10.0.0.0/8":                        {2, []string{`"vip" not set`}},
		"node --interface lo --vip 10.1.1 --balancer 10.0.0.0/8":           {2, []string{"--vip: ", "10.1.1"}},
		"node --interface lo --vip 10.1.1.1:80/tcp --balancer 10.0.0.1":    {2, []string{"--balancer: ", "10.0.0.1"}},
		"preflight --config " + bad:                                        {1, []string{badPort, badField}},
		"preflight --config " + good + " --interface lo":                   {2, []string{"[config interface]"}},
		"status --socket " + dir + "/none":                                 {1, []string{"no agent at " + dir + "/none: "}},
		"services --socket " + dir + "/none -o json":                       {1, []string{"no agent at "}},
		"backends a b":                                       {2, []string{"accepts at most 1 arg(s)"}},
		"backends -o xml":                                    {2, []string{"want table, json or yaml"}},
		"status --log-level debug":                           {2, []string{"unknown flag: --log-level"}},
		"agent --log-level loud":                             {2, []string{"want debug, info, warn or error"}},
		"drain backend web nonsense":                         {2, []string{`backend "nonsense"`}},
		"drain nonsense":                                     {2, []string{`unknown command "nonsense" for "fairlead drain"`}},
		"trace --from 192.0.2.7 --to nonsense":               {2, []string{"--to: "}},
		"config import keepalived --interface lo --mark 0 x": {2, []string{"--mark: "}},
		"trace":                  {2, []string{"[to pcap]"}},
		"trace --to 10.1.1.1:80": {2, []string{"[from to]"}},
		"trace --pcap x --to 10.1.1.1:80 --from 1.2.3.4":                {2, []string{"[pcap to]"}},
		"trace --from 1.2.3.4:5 --to 10.1.1.1":                          {2, []string{"tcp needs ports"}},
		"trace --from x --to 10.1.1.1:80":                               {2, []string{"--from: "}},
		"trace --from 1.2.3.4:5 --to 10.1.1.1:80 --protocol sctp":       {2, []string{"want tcp, udp or icmp"}},
		"trace --from 1.2.3.4:5 --to 10.1.1.1:80 --flags all":           {2, []string{`flag "all"`}},
		"trace --pcap /nonexistent":                                     {1, []string{"no such file"}},
		"trace --pcap /dev/null":                                        {1, []string{"capture: "}},
		"trace --from 1.2.3.4:5 --to 10.1.1.1:80 --socket /nonexistent": {1, []string{"no agent at "}},
		"flows --client nonsense":                                       {2, []string{"--client: "}},
		"flows --client 10.0.0.0/33":                                    {2, []string{"--client: "}},
		"flows --limit 0":                                               {2, []string{"--limit 0"}},
		"top --interval 10ms":                                           {2, []string{"--interval 10ms: want at least 1s"}},
		"top --socket /nonexistent":                                     {1, []string{"no agent at "}},
		"status --nonsense":                                             {2, []string{"unknown flag: --nonsense"}},
		"nonsense":                                                      {2, []string{"unknown command"}},
		"reload --socket " + dir + "/none":                              {1, []string{"no agent at "}},
	} {
		status, stdout, stderr := command(strings.Fields(line)...)
		if status != want.status || stdout != "" {
			t.Errorf("%s: status %d, want %d, prints %q", line, status, want.status, stdout)
		}
		for _, text := range want.texts {
			if !strings.Contains(stderr, text) {
				t.Errorf("%s: got %q, want %q", line, stderr, text)
			}
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("--remove took a folder while an agent runs: %v", err)
	}
}

// deployed are the pages with the command lines of containers and of systemd's units.
var deployed = regexp.MustCompile(`(?m)^ +args:\n((?: +- .*\n)+)|^Exec\w+=/usr/local/bin/fairlead (.+)$`)

// Commands and flags of the chart's containers and of systemd's units exist.
func TestDeployedCommands(t *testing.T) {
	for path, want := range map[string]int{
		"helm/testdata/rendered/everything.yaml": 3, "helm/testdata/rendered/bare.yaml": 3, "helm/testdata/rendered/control.yaml": 1,
		"helm/testdata/rendered/balancers.yaml": 1, "systemd/fairlead.service": 2, "systemd/fairlead-apiserver.service": 1,
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", path))
		if err != nil {
			t.Fatal(err)
		}
		lines := deployed.FindAllStringSubmatch(string(text), -1)
		if len(lines) != want {
			t.Errorf("%s: %d command lines, want %d", path, len(lines), want)
		}
		for _, line := range lines {
			args := append(strings.Fields(strings.ReplaceAll(line[1]+line[2], " - ", " ")), "--help")
			if status, _, stderr := command(args...); status != 0 {
				t.Errorf("%s: fairlead %q: status %d, %s", path, args, status, stderr)
			}
		}
	}
}

func TestPreflightCommand(t *testing.T) {
	missing := fmt.Sprintf("no%d", os.Getpid())
	status, stdout, _ := command("preflight", "--interface", missing, "-o", "json")
	var findings []preflight.Finding
	if err := json.Unmarshal([]byte(stdout), &findings); err != nil {
		t.Fatal(err)
	}
	last := findings[len(findings)-1]
	if status != 1 || last.Interface != missing || last.Result != preflight.Fail {
		t.Errorf("status %d, last finding %+v, want a failure", status, last)
	}
	status, stdout, _ = command("preflight", "--interface", "lo")
	if failed := strings.Contains(stdout, "fail "); failed != (status == 1) || !strings.Contains(stdout, "lo: link") {
		t.Errorf("status %d\n%s", status, stdout)
	}
}

// TestLogLevel checks that lower levels are left out, in both formats.
func TestLogLevel(t *testing.T) {
	for line, want := range map[string]string{
		"":                                    "level=INFO msg=b\nlevel=WARN msg=c\n",
		"--log-level debug":                   "level=DEBUG msg=a\nlevel=INFO msg=b\nlevel=WARN msg=c\n",
		"--log-level warn":                    "level=WARN msg=c\n",
		"--log-level error":                   "",
		"--log-level warn --log-format json":  `"level":"WARN","msg":"c"}` + "\n",
		"--log-level error --log-format json": "",
	} {
		var flags logFlags
		cmd := &cobra.Command{}
		flags.register(cmd)
		if err := cmd.ParseFlags(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		log := flags.logger(&out)
		log.Debug("a")
		log.Info("b")
		log.Warn("c")
		if got := times.ReplaceAllString(out.String(), ""); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// times matches the times of log lines.
var times = regexp.MustCompile(`(?m)^(time=\S+ |\{"time":"[^"]*",)`)

func TestVersion(t *testing.T) {
	_, want, _ := command("version")
	if status, got, _ := command("--version"); status != 0 || got != want || !strings.HasPrefix(got, "fairlead dev (commit ") {
		t.Errorf("status %d, %q, want %q", status, got, want)
	}
}
