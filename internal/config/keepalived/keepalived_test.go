// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/test/golden"
)

func vip(addrPort string, protocol lb.Protocol) lb.VIP {
	a := netip.MustParseAddrPort(addrPort)
	return lb.VIP{Address: a.Addr(), Port: a.Port(), Protocol: protocol}
}

// examples are the files of testdata, with their options.
var examples = map[string]Options{
	"checks": {}, "leftout": {}, "methods": {}, "persistence": {}, "schedulers": {},
	"dissertation": {Marks: map[uint32][]lb.VIP{1: {vip("192.0.2.1:80", lb.TCP), vip("192.0.2.1:8080", lb.TCP)}}},
	"unmarked":     {},
	"group":        {Marks: map[uint32][]lb.VIP{7: {vip("203.0.113.1:53", lb.UDP)}}},
	"language":     {ConfigID: "main"},
	"unselected":   {},
	"ignored":      {},
	"marks": {Marks: map[uint32][]lb.VIP{
		7: {vip("192.0.2.9:80", lb.TCP), vip("[2001:db8::9]:80", lb.TCP)}, 8: {vip("192.0.2.8:80", lb.TCP), vip("[2001:db8::8]:80", lb.TCP)},
		5: {vip("192.0.2.5:80", lb.TCP), vip("192.0.2.5:443", lb.TCP)}, 6: {vip("192.0.2.6:80", lb.TCP), vip("192.0.2.6:443", lb.TCP)},
	}},
}

// TestExamples compares the configuration and the findings of each example with golden files.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) != len(examples) {
		t.Fatalf("%d files and %d examples, %v", len(files), len(examples), err)
	}
	for name, o := range examples {
		t.Run(name, func(t *testing.T) {
			o.Interfaces = []string{"eth0"}
			path := filepath.Join("testdata", name+".conf")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Import(path, string(text), o)
			if err != nil {
				t.Fatal(err)
			}
			report := ""
			for _, f := range r.Findings {
				report += f.String() + "\n"
			}
			golden.File(t, filepath.Join("testdata", name+".yaml"), r.YAML)
			golden.File(t, filepath.Join("testdata", name+".report"), report)
			checkResult(t, path, string(text), o)
		})
	}
}

// checkResult parses the configuration of an import as an agent does, compares its services
// with the translated ones, and looks for each finding among its comments.
func checkResult(t *testing.T, name, text string, o Options) {
	t.Helper()
	r, err := Import(name, text, o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("f", r.YAML, dataplane.Unlimited(maxBackends))
	if err != nil {
		t.Fatalf("%v\n%s", err, r.YAML)
	}
	im, err := translate(name, text, o)
	if err != nil {
		t.Fatal(err)
	}
	var want []lb.Service
	for _, s := range im.services {
		if s.Protocol == lb.UDP && s.Forward != lb.NAT {
			s.Learn = lb.DefaultLearn
		}
		s.Backends = lb.SortBackends(s.Backends)
		want = append(want, s.Service)
	}
	compareAddr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, c.Services, compareAddr, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the configuration differs: -translated +parsed:\n%s\n%s", diff, r.YAML)
	}
	for _, f := range r.Findings {
		if !strings.Contains(r.YAML, "# "+f.String()+"\n") {
			t.Errorf("no comment %q", f)
		}
	}
}

// TestErrors has files that aren't translated at all.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a {\n b {\n }\n":                       `f:1: the block of "a" has no closing brace`,
		"a {\n}\n}\n":                           "f:3: } without an open block",
		"a {\n}\n{\n}\n":                        "f:3: { without a keyword before it",
		"{ }":                                   "f:1: { without a keyword before it",
		"\nscript \"a\n":                        "f:2: a quote is not closed",
		"include none.conf\n":                   "f:1: include none.conf: no such file",
		"include \"testdata/group.conf\"\n":     "f:1: include \"testdata/group.conf\": no such file",
		"a { include none.conf\n}\n":            "f:1: include none.conf: no such file",
		"include testdata\n":                    "f:1: include testdata: testdata: not a regular file",
		"include {a,b}.conf\n":                  "f:1: include {a,b}.conf: braces are not supported",
		"include [a-\n":                         "f:1: include [a-: syntax error in pattern",
		"a ${NONE}\n":                           "f:1: ${NONE} is not defined, or not supported",
		"$A=1\n$A=${A}${A}\nx ${A}\n":           "f:3: ",
		"x ${_RANDOM 1 5}\n":                    "f:1: ${_RANDOM 1 5} is not defined, or not supported",
		"$A= \\\nx \\\n$A\n\n\n$A\n":            "f:3: more than 64 definitions and sequences inside each other",
		"~SEQ(N, 1, 0, 3) a\n":                  "f:1: bad sequence",
		"~SEQ(N, 1, x) a\n":                     "f:1: bad sequence",
		"~SEQ(N, 1, 1000000000) a ${N}\n":       "f:1: definitions, sequences and included files expand to more than 33554432 bytes",
		"~ALL(N) a\n":                           "f:1: unknown block ~ALL(N) a",
		"a " + strings.Repeat("b", maxLine):     "f:1: the line is too long",
		strings.Repeat("a {\n", maxBlocks+1):    "f:65: more than 64 blocks inside each other",
		"global_defs\n":                         "f:1: global_defs: the opening brace of its block is missing",
		"virtual_server 192.0.2.1 80\n":         "f:1: virtual_server: the opening brace of its block is missing",
		inVirtual("real_server 10.0.0.1"):       "f:2: real_server: the opening brace of its block is missing",
		inVirtual("weight 1\n {\n }"):           "f:2: weight: it has no block: ",
		inVirtual("weight"):                     "f:2: weight: a parameter is missing: keepalived exits",
		inVirtual("\n protocol"):                "f:3: protocol: a parameter is missing: keepalived exits",
		inVirtual("TCP_CHECK {\n }"):            "f:2: TCP_CHECK: unknown keyword in virtual_server: keepalived ends that block at the closing",
		"virtual_server fwmark 1 {\n}\n":        "f: no virtual server has the firewall mark 2",
		"x" + strings.Repeat("\n", 5) + "\x1b}": "f:6: } without an open block",
	} {
		_, err := Import("f", text, Options{
			Interfaces: []string{"eth0"}, Marks: map[uint32][]lb.VIP{2: {vip("192.0.2.1:80", lb.TCP)}},
		})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60q: error %v, want %q", text, err, want)
		}
	}
	if _, err := Import("f", "", Options{Interfaces: []string{"a/b"}}); err == nil || !strings.Contains(err.Error(), "node.interfaces") {
		t.Errorf("bad interface: %v", err)
	}
}

// inVirtual returns a virtual server with a statement.
func inVirtual(statement string) string {
	return "virtual_server 192.0.2.1 80 {\n" + statement + "\n}\n"
}

// Included files may include others; a file that includes itself ends with an error.
func TestInclude(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("loop", "includea loop\n")
	if _, err := Import(filepath.Join(dir, "f"), "include loop\n", Options{Interfaces: []string{"eth0"}}); err == nil ||
		!strings.HasPrefix(err.Error(), filepath.Join(dir, "loop")+":1: include loop: more than 16 files") {
		t.Errorf("have %v", err)
	}
	write("bad", "a\n}\n")
	if _, err := Import(filepath.Join(dir, "f"), "includer "+dir+"/ba?\n", Options{Interfaces: []string{"eth0"}}); err == nil ||
		!strings.HasPrefix(err.Error(), filepath.Join(dir, "bad")+":2: ") {
		t.Errorf("have %v", err)
	}
	r, err := Import(filepath.Join(dir, "f"), "include *.none\n", Options{Interfaces: []string{"eth0"}})
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Line != 1 {
		t.Errorf("have %+v, %v", r, err)
	}
}

// Ranges that are too large are cut, and reported.
func TestCapacity(t *testing.T) {
	const server = " {\nlb_algo rr\nprotocol TCP\nreal_server 10.0.0.1 80 {\n}\n}\n"
	r, err := Import("f", "virtual_server_group g {\n2001:db8::/64 80\n10.1.0.0/16 80\n}\nvirtual_server group g"+
		strings.ReplaceAll(server, "protocol", "lb_kind TUN\nprotocol"), Options{Interfaces: []string{"eth0"}})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(r.YAML, "- name:"); n != maxServices || len(r.Findings) != 1 || r.Findings[0].Line != 5 {
		t.Errorf("%d services, findings %v", n, r.Findings)
	}
}

var block = regexp.MustCompile("(?s)```[a-z]+ (keepalived\\.conf|fairlead\\.yaml|report)\n(.*?)```")

// The guide's example is the command's output.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guides/keepalived.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		blocks[m[1]] = m[2]
	}
	r, err := Import("keepalived.conf", blocks["keepalived.conf"], Options{Interfaces: []string{"eth0"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(blocks["fairlead.yaml"], r.YAML); diff != "" {
		t.Errorf("configuration: -guide +import:\n%s", diff)
	}
	report := ""
	for _, f := range r.Findings {
		report += f.String() + "\n"
	}
	if diff := cmp.Diff(blocks["report"], report); diff != "" {
		t.Errorf("report: -guide +import:\n%s", diff)
	}
}

// rejected matches keepalived's messages about a line that it can't read. It exits with the same status
// where it only takes a default.
var rejected = regexp.MustCompile(`Unknown (keyword|protocol)|[Ii]nvalid|Unmatched|Unterminated|Missing|Unexpected|Extra|skipping`)

// located matches a message with its line.
var located = regexp.MustCompile(`(?m)^\((.*): Line (\d+)\) (.*)$`)

// runKeepalived returns the messages of "keepalived --config-test" about a file.
func runKeepalived(t *testing.T, text string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("keepalived")
	switch {
	case err != nil && os.Geteuid() == 0: // "make test" installs it
		t.Fatalf("%v: scripts/install-deps.sh test", err)
	case err != nil:
		t.Skip("keepalived is not installed")
	}
	path := filepath.Join(t.TempDir(), "keepalived.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, append([]string{"--config-test", "--use-file", path}, args...)...)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	said, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || !exit.Exited()) {
		t.Fatalf("%v\n%s\n%s", err, said, text)
	}
	return string(said)
}

// place returns the line that an import reports for the n-th line: of the statement whose block ends there,
// or that is reported as a whole.
func place(lines []string, n int) int {
	var open []int
	for i, line := range lines[:n] {
		switch line = strings.TrimSpace(line); {
		case line == "}" && i == n-1 && len(open) > 0:
			return open[len(open)-1]
		case line == "}" && len(open) > 0:
			open = open[:len(open)-1]
		case strings.HasSuffix(line, "{"):
			open = append(open, i+1)
		}
	}
	if len(open) > 0 {
		if d := keywords()[""][strings.Fields(lines[open[0]-1])[0]]; d != nil && d.inside == anything && d.outcome == reported {
			return open[0]
		}
	}
	return n
}

// TestKeepalived runs keepalived in addition to the import: each line that keepalived names is reported, and it reads
// everything of the examples that have only one name each.
func TestKeepalived(t *testing.T) {
	for name, o := range examples {
		text, err := os.ReadFile(filepath.Join("testdata", name+".conf"))
		if err != nil {
			t.Fatal(err)
		}
		// Included files are in the folder.
		dir, err := filepath.Abs("testdata")
		if err != nil {
			t.Fatal(err)
		}
		absolute := strings.ReplaceAll(string(text), "\ninclude ", "\ninclude "+dir+"/")
		var args []string
		if o.ConfigID != "" {
			args = []string{"--config-id", o.ConfigID}
		}
		said := runKeepalived(t, absolute, args...)
		if name != "ignored" && rejected.MatchString(said) {
			t.Errorf("%s: %s", name, said)
		}
		checkMessages(t, name, string(text), o, said)
	}
}

// checkMessages looks for a finding on each line that keepalived names.
func checkMessages(t *testing.T, name, text string, o Options, said string) {
	t.Helper()
	o.Interfaces = []string{"eth0"}
	r, err := Import(filepath.Join("testdata", name), text, o)
	if err != nil {
		return // nothing is translated
	}
	lines := strings.Split(text, "\n")
	for _, m := range located.FindAllStringSubmatch(said, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil || filepath.Base(m[1]) != "keepalived.conf" {
			continue
		}
		n = place(lines, n)
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Line == n }) {
			t.Errorf("%s: no finding on line %d, where keepalived says: %s", name, n, m[3])
		}
	}
}

// FuzzImport shows that no file makes Import panic, and that each configuration is valid and
// has the services that were translated.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("virtual_server 192.0.2.1 80 {\nreal_server 10.0.0.1 80 {\nHTTP_GET {\nurl {\npath /\xab\n}\n}\n}\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return // may read other files
		}
		o := Options{Interfaces: []string{"eth0"}, ConfigID: "main"}
		if _, err := Import("f", text, o); err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "translation is invalid") {
				t.Errorf("%v", err)
			}
			return
		}
		checkResult(t, "f", text, o)
	})
}

// A line may have as many bytes as keepalived reads, before and after its parameters are replaced.
func TestLongestLine(t *testing.T) {
	value := strings.Repeat("b", maxLine-3)
	for text, long := range map[string]bool{"$A=" + value + "\nxx $A": false, "$A=" + value + "\nxxx $A": true, "xx " + value: false, "xxx " + value: true} {
		p := parser{}
		if _, err := p.parse("f", text); (err != nil) != long {
			t.Errorf("%.9q: %v, want an error: %t", text, err, long)
		}
	}
}
