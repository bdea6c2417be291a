// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/lab/openstack"
)

var update = flag.Bool("update", false, "write the lists of tempest's tests that can't pass")

// api is the package of tempest's tests of Octavia's API.
const api = "octavia_tempest_plugin.tests.api.v2."

// tempestRuns are runs of tempest's tests. Only with nat may members be no ports of Neutron.
var tempestRuns = []struct {
	name string
	// options are the provider's.
	options []string
	// args are tempest's.
	args []string
}{
	{"xdp", []string{"forward = nat", "round_robin_as_hash = true"}, []string{"--concurrency", "2", "--regex", api}},
	// Serial, as VIPs without a VLAN are unique, and each class of tests has a network with the same addresses.
	{"ipvs", []string{"forward = nat", "data_plane = ipvs"}, []string{"--serial", "--regex", api + `.*_LC_`}},
}

// Tempest's tests of the API pass, except for the ones that testdata/tempest-RUN.txt lists with reasons. The run
// ipvs has the tests of LEAST_CONNECTIONS. They see the control plane: in a kernel without IPVS, the balancers refuse
// listeners whose pool has members.
func TestTempest(t *testing.T) {
	c := newCloud(t, "tempest")
	for _, run := range tempestRuns {
		t.Run(run.name, func(t *testing.T) {
			if err := c.plane.Configure(t.Context(), run.options...); err != nil {
				t.Fatal(err)
			}
			got := c.tempest(t, run.args...)
			list := filepath.Join("testdata", "tempest-"+run.name+".txt")
			if *update {
				if err := os.WriteFile(list, []byte(got.list(run.options)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got.compare(t, list)
			c.checkNoneServed(t)
		})
	}
}

// tempest runs tests and returns their results.
func (c *cloud) tempest(t *testing.T, args ...string) results {
	t.Helper()
	c.Run(t, openstack.Controller, slices.Concat([]string{
		"env", "HOME=" + c.plane.Dir, "sh", "-c", `"$0" run --config-file tempest.conf "$@" >tempest.log 2>&1 || test $? = 1`, c.plane.Bin("tempest"),
	}, args)...)
	text, err := os.ReadFile(filepath.Join(c.plane.Dir, "tempest.log"))
	if err != nil {
		t.Fatal(err)
	}
	found := readResults(string(text))
	if found.passed == 0 {
		t.Fatalf("tempest:\n%s", text[max(0, len(text)-5000):])
	}
	return found
}

// results are the results of a run of tempest.
type results struct {
	passed int
	// skipped are the reasons of skipped tests, by name. A class that was skipped has one entry.
	skipped map[string]string
	// failed is the output of failed tests.
	failed map[string]string
}

var (
	resultLine = regexp.MustCompile(`(?m)^\{\d+\} (.+?)(?: \[[\d.]+s\])? \.\.\. (ok|FAILED|SKIPPED)(?:: (.*))?$`)
	// object is the part of a refusal before the option.
	object = regexp.MustCompile(`^Provider 'fairlead' does not support a requested option: (?:(?:(?:listener|pool|member) \S+|flavor|health monitor): )?`)
)

// readResults reads the output of tempest.
func readResults(text string) results {
	const most = 5000 // of a failed test, without requests
	r := results{skipped: map[string]string{}, failed: map[string]string{}}
	for _, at := range resultLine.FindAllStringIndex(text, -1) {
		line := resultLine.FindStringSubmatch(text[at[0]:at[1]])
		name := strings.Replace(line[1], api, "", 1)
		switch line[2] {
		case "ok":
			r.passed++
		case "SKIPPED":
			r.skipped[name] = object.ReplaceAllString(line[3], "")
		case "FAILED":
			r.failed[name], _, _ = strings.Cut(text[at[1]:min(at[1]+most, len(text))], "Captured pythonlogging:")
		}
	}
	return r
}

// list is the text of the file that lists the skipped tests.
func (r results) list(options []string) string {
	byReason := map[string][]string{}
	for name, reason := range r.skipped {
		byReason[reason] = append(byReason[reason], name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Tests of %s that can't pass with %s.\n", strings.TrimSuffix(api, "."), strings.Join(options, " and "))
	b.WriteString("# Written by go test -timeout=150m -run TestTempest ./test/e2e/openstack -update\n")
	fmt.Fprintf(&b, passing, r.passed)
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintf(&b, "\n%s (%d)\n", reason, len(byReason[reason]))
		for _, name := range slices.Sorted(slices.Values(byReason[reason])) {
			b.WriteString("  " + name + "\n")
		}
	}
	return b.String()
}

// passing is the line of the list with the number of tests that pass.
const passing = "# %d pass.\n"

var count = regexp.MustCompile(` \(\d+\)$`)

// compare checks that the tests of the list were skipped for the listed reasons, and that all others passed.
func (r results) compare(t *testing.T, list string) {
	t.Helper()
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	listed, reason := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		name, isName := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  ")
		if isName {
			listed[name] = reason
		} else {
			reason = count.ReplaceAllString(name, "")
		}
	}
	for name, output := range r.failed {
		t.Errorf("%s failed:%s", name, output)
	}
	for name, reason := range r.skipped {
		if reason != listed[name] {
			t.Errorf("%s is skipped: %s: the list has %q", name, reason, listed[name])
		}
	}
	for name, reason := range listed {
		if _, found := r.skipped[name]; !found {
			t.Errorf("%s isn't skipped: the list has %q", name, reason)
		}
	}
	if want := fmt.Sprintf(passing, r.passed); !strings.Contains(string(text), want) {
		t.Errorf("%d tests pass, which the list doesn't have", r.passed)
	}
	t.Logf("%d tests pass, %d can't", r.passed, len(r.skipped))
}
