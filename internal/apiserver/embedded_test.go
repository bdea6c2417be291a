// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// anyPolicy allows all requests of the tests of all stores.
const anyPolicy = `
addressPools:
- {name: public, addresses: [203.0.113.0/24]}
loadBalancers:
  memberNetworks: [192.0.2.0/24, "2001:db8::/32", 10.0.0.0/8]
dataPlane: {firewallMarkMask: 0xff00}
`

// testKinds are compiled once for all tests, which takes a while with the race detector.
var testKinds = sync.OnceValues(loadKinds)

// newEmbedded returns an embedded store in a new file.
func newEmbedded(t testing.TB) *embeddedStore {
	t.Helper()
	return openEmbedded(t, filepath.Join(t.TempDir(), "data"), anyPolicy)
}

// openEmbedded opens a file until the test ends.
func openEmbedded(t testing.TB, path, policy string) *embeddedStore {
	t.Helper()
	kinds, err := testKinds()
	if err != nil {
		t.Fatal(err)
	}
	p, err := parsePolicy([]byte(policy), kinds)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openEmbeddedStore(path, p, kinds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// find returns an object; nil if there is none.
func (s *embeddedStore) find(project, name string) (*unstructured.Unstructured, error) {
	text, err := s.text(project, name)
	if err != nil || text == nil {
		return nil, err
	}
	return decode(text)
}

// count returns how many LoadBalancers there are.
func (s *embeddedStore) count() (n int) {
	_ = s.file.View(func(tx *bolt.Tx) error {
		n = tx.Bucket(objectsBucket).Stats().KeyN
		return nil
	})
	return n
}

// The store validates as a Kubernetes API server does.
func TestEmbedded(t *testing.T) {
	newAPI(t, 2).testValidating(t)
}

// A request whose time ends while rules are checked has the store unavailable: its object isn't
// invalid.
func TestValidationIsInterrupted(t *testing.T) {
	s := openEmbedded(t, filepath.Join(t.TempDir(), "data"), anyPolicy)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	object := newObject("large")
	var members []any
	for i := range 256 {
		members = append(members, map[string]any{"address": fmt.Sprintf("10.0.0.%d", i), "port": int64(1)})
	}
	object.Object["spec"] = map[string]any{"forward": "nat", "pools": []any{map[string]any{"name": "p", "members": members}}}
	if err := s.Create(ctx, "web", object); httpErrorOf(err).Status != http.StatusServiceUnavailable {
		t.Errorf("%v, want 503", err)
	}
}

// writerData is the environment variable with the file of writeUntilKilled.
const writerData = "FAIRLEAD_TEST_DATA"

// writeUntilKilled writes LoadBalancers, and has a line "NAME VERSION" on the standard output for
// each write once it is answered; the version is 0 if it was deleted.
func writeUntilKilled(path string) error {
	kinds, err := loadKinds()
	if err != nil {
		return err
	}
	p, err := parsePolicy([]byte(anyPolicy), kinds)
	if err != nil {
		return err
	}
	s, err := openEmbeddedStore(path, p, kinds)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for n := 0; ; n++ {
		name := fmt.Sprintf("lb%d", n%7)
		object, err := s.find("web", name)
		if err != nil {
			return err
		}
		switch {
		case object == nil:
			object = newObject(name)
			object.Object["spec"] = map[string]any{"forward": "nat"}
			err = s.Create(ctx, "web", object)
		case n%3 == 0:
			err = s.Delete(ctx, "web", object)
			object.SetResourceVersion("0")
		default:
			specOf(object)["firewallMark"] = int64(n + 1)
			err = s.Update(ctx, "web", object)
		}
		if err != nil {
			return err
		}
		fmt.Println(name, object.GetResourceVersion())
	}
}

// A process that is killed while it writes has lost no write that it answered, and its file can be
// opened again.
func TestCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	model := map[string]int{} // versions by project/name
	for round := range 4 {
		writer := exec.CommandContext(t.Context(), os.Args[0])
		writer.Env = append(os.Environ(), writerData+"="+path)
		writer.Stderr = os.Stderr
		output, err := writer.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(output)
		n := 0
		for ; lines.Scan(); n++ {
			name, version, _ := strings.Cut(lines.Text(), " ")
			if model["web/"+name], err = strconv.Atoi(version); err != nil {
				t.Error(err)
			}
			if n == 40+round*13 {
				if err := writer.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
		}
		_ = writer.Wait()
		maps.DeleteFunc(model, func(_ string, version int) bool { return version == 0 })
		s := openEmbedded(t, path, anyPolicy)
		got := stored(t, s, "web")
		// One write may be done that wasn't answered.
		differ := 0
		for i := range 7 {
			if key := fmt.Sprintf("web/lb%d", i); got[key] != model[key] {
				differ++
			}
		}
		if n < 40 || differ > 1 {
			t.Fatalf("after %d writes: %v, want %v", n, got, model)
		}
		model = got
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Only one server has a file, which only its user can read.
func TestFileIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	first := openEmbedded(t, path, anyPolicy)
	if _, err := openEmbeddedStore(path, first.policy, kinds{}); err == nil || !strings.Contains(err.Error(), "file is locked by another server") {
		t.Errorf("error %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// A file of another version or program is refused, and left as it is.
func TestFileFormat(t *testing.T) {
	update := func(change func(tx *bolt.Tx) error) func(path string) error {
		return func(path string) error {
			file, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				return err
			}
			return errors.Join(file.Update(change), file.Close())
		}
	}
	text := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, c := range map[string]struct {
		write func(path string) error
		want  string
	}{
		"text":      {text("text"), ""},
		"long text": {text(strings.Repeat("text", 10_000)), ""},
		"another version": {func(path string) error {
			s := openEmbedded(t, path, anyPolicy)
			newAPIOf(t, s, 1).must(201, "web", "PUT", base+"/a", `{"forward":"nat"}`)
			return errors.Join(s.Close(), update(func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Put(formatKey, []byte("2")) })(path))
		}, `format "2" is of another version`},
		"another program": {update(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte("other"))
			return err
		}), "another program's"},
	} {
		path := filepath.Join(t.TempDir(), "data")
		if err := c.write(path); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openEmbeddedStore(path, &policy{}, kinds{}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Errorf("%s: the file has changed, error %v", name, err)
		}
	}
}

// A page of large objects ends early, also if they don't have the labels, and the next one continues.
func TestLargePages(t *testing.T) {
	a := newAPI(t, 1)
	label := strings.Repeat("x", 63)
	var labels []string
	for i := range 5000 {
		labels = append(labels, fmt.Sprintf(`"%s%04d":"%s"`, label[:59], i, label))
	}
	body := `{"forward":"nat","labels":{` + strings.Join(labels, ",") + `}}`
	const balancers = 9
	for i := range balancers {
		a.must(201, "web", "PUT", fmt.Sprintf("%s/lb%d", base, i), body)
	}
	for query, want := range map[string]int{"": balancers, "labelSelector=none&": 0} {
		seen, pages := 0, 0
		for next := ""; pages == 0 || next != ""; pages++ {
			page := a.must(200, "web", "GET", base+"?"+query+"continue="+next, "").body
			if len(page) > maxPage {
				t.Errorf("a page has %d bytes", len(page))
			}
			seen += strings.Count(page, `"name":"lb`)
			_, next, _ = strings.Cut(page, `"continue":"`)
			next, _, _ = strings.Cut(next, `"`)
		}
		if seen != want || pages < 2 {
			t.Errorf("%q: %d load balancers on %d pages", query, seen, pages)
		}
	}
}

// Addresses are given out by the policy. No project gets one that another project has until it is deleted,
// and nothing changes by a request that is refused.
func TestAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	const policy = `
addressPools:
- {name: public, addresses: [203.0.113.0/31], retainFor: 0s}
- {name: manual, addresses: ["2001:db8::/64"], autoAssign: false}
- {name: neutron, addresses: [198.51.100.0/24], external: true, projects: [web]}
loadBalancers: {memberNetworks: [10.0.0.0/8], segments: [{type: vlan, first: 5}]}
`
	a := newAPIOf(t, openEmbedded(t, path, policy), 1)
	for _, step := range []struct {
		project, method, name, body string
		status                      int
		want                        string // in the body, or the address
	}{
		{"web", "PUT", "a", `{"forward":"nat"}`, 201, "203.0.113.0"},
		{"other", "PUT", "a", `{"forward":"nat","address":"203.0.113.0"}`, 422, `"field":"address","detail":"Forbidden: address 203.0.113.0: another load balancer has it"`},
		{"other", "PUT", "a", `{"forward":"nat","address":"192.0.2.1"}`, 422, "not in pools public, manual"},
		{"other", "PUT", "a", `{"forward":"nat","address":"198.51.100.7"}`, 422, "not in pools public, manual"},
		{"other", "PUT", "a", `{"forward":"nat","ipFamily":"IPv6"}`, 422, "no IPv6 addresses"},
		{"other", "PUT", "a", `{"forward":"nat","ipFamily":"IPv6","addressPool":"manual"}`, 201, "2001:db8::"},
		{"other", "PUT", "b", `{"forward":"nat"}`, 201, "203.0.113.1"},
		{"web", "PUT", "c", `{"forward":"nat"}`, 422, "Forbidden: pool public: no free IPv4 address"},
		{"web", "PUT", "c", `{"forward":"nat","address":"198.51.100.7"}`, 201, "198.51.100.7"},
		{"web", "PUT", "a", `{"forward":"nat","address":"203.0.113.1"}`, 422, "another load balancer has it"},
		{"other", "PUT", "d", `{"forward":"nat","address":"203.0.113.0"}`, 422, "another load balancer has it"},
		{"web", "PUT", "a", `{"forward":"nat","address":"198.51.100.8"}`, 200, "198.51.100.8"},
		{"other", "PUT", "d", `{"forward":"nat"}`, 201, "203.0.113.0"},
		{"other", "DELETE", "b", "", 204, ""},
		{"web", "PUT", "b", `{"forward":"nat"}`, 201, "203.0.113.1"},
		{"web", "PUT", "s", `{"forward":"nat","address":"10.9.9.9","segment":{"type":"vlan","id":5}}`, 201, "10.9.9.9"},
		{"other", "PUT", "s", `{"forward":"nat","address":"10.9.9.9","segment":{"type":"vlan","id":5}}`, 422, "another load balancer has it"},
		{"other", "PUT", "s", `{"forward":"nat","address":"10.9.9.9","segment":{"type":"vlan","id":6}}`, 422, "vlan 6 isn't in the policy's loadBalancers.segments"},
		{"web", "PUT", "s", `{"forward":"nat","address":"198.51.100.9"}`, 200, "198.51.100.9"},
		{"other", "PUT", "t", `{"forward":"nat","address":"10.9.9.9","segment":{"type":"vlan","id":5}}`, 201, "10.9.9.9"},
	} {
		url := "/v1/projects/" + step.project + "/loadbalancers/" + step.name
		got := a.must(step.status, step.project, step.method, url, step.body).body
		want := step.want
		if step.status < 300 && step.method == "PUT" {
			got, want = a.must(200, step.project, "GET", url+"/status", "").body, `"address":"`+step.want+`"`
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s %s %s: want %s in %s", step.method, url, step.body, want, got)
		}
	}
}

// A released address is for its former project alone, also after a restart, until the policy frees it.
func TestRetainedAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	open := func(retainFor string) *api {
		policy := "addressPools: [{name: public, addresses: [203.0.113.0/30]" + retainFor + "}]\n" +
			"loadBalancers: {segments: [{type: vlan, first: 5}]}\n"
		return newAPIOf(t, openEmbedded(t, path, policy), 1)
	}
	const others = "/v1/projects/other/loadbalancers"
	const first, second = `{"forward":"nat","address":"203.0.113.0"}`, `{"forward":"nat","address":"203.0.113.1"}`
	a := open("")
	a.must(201, "web", "PUT", base+"/a", first)
	a.must(201, "web", "PUT", base+"/b", second)
	a.must(200, "web", "PUT", base+"/b", `{"forward":"nat","address":"203.0.113.2"}`)
	a.must(204, "web", "DELETE", base+"/a", "")
	a.must(201, "web", "PUT", base+"/s", `{"forward":"nat","address":"203.0.113.3","segment":{"type":"vlan","id":5}}`)
	a.must(204, "web", "DELETE", base+"/s", "")
	for range 2 {
		for _, body := range []string{first, second} {
			if got := a.must(422, "other", "PUT", others+"/a", body).body; !strings.Contains(got, "retained") {
				t.Errorf("%s: %s", body, got)
			}
		}
		if err := a.store.(*embeddedStore).Close(); err != nil {
			t.Fatal(err)
		}
		a = open("")
	}
	a.must(201, "other", "PUT", others+"/free", `{"forward":"nat"}`) // 203.0.113.3
	a.must(201, "web", "PUT", base+"/again", `{"forward":"nat"}`)
	a.must(204, "web", "DELETE", base+"/again", "")
	a.must(422, "other", "PUT", others+"/a", `{"forward":"nat"}`)
	if err := a.store.(*embeddedStore).Close(); err != nil {
		t.Fatal(err)
	}
	a = open(", retainFor: 0s")
	a.must(201, "other", "PUT", others+"/a", first)
	a.must(201, "other", "PUT", others+"/b", second)
}

// A store that is opened with the same policy changes nothing; with another one it decides again.
// Load balancers keep addresses that the new policy doesn't allow, and aren't served.
func TestPolicyChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	statuses := func(policy string, write bool) (all string, versions map[string]int) {
		s := openEmbedded(t, path, policy)
		defer s.Close()
		a := newAPIOf(t, s, 1)
		if write {
			a.must(201, "web", "PUT", base+"/a", `{"forward":"nat","listeners":[{"name":"l","port":80,"pool":"p"}],"pools":[{"name":"p","members":[{"address":"10.0.0.1","port":80}]}]}`)
			a.must(201, "web", "PUT", base+"/b", `{"forward":"nat"}`)
			a.must(201, "web", "PUT", base+"/c", `{"forward":"nat","address":"203.0.113.9"}`)
		}
		for _, name := range []string{"/a", "/b", "/c"} {
			all += a.must(200, "web", "GET", base+name+"/status", "").body + "\n"
		}
		return all, stored(t, s, "web")
	}
	const policy = "addressPools: [{name: public, addresses: [203.0.113.0/28]}]\nloadBalancers: {memberNetworks: [10.0.0.0/8]}\n"
	before, versions := statuses(policy, true)
	if again, same := statuses(policy, false); again != before || !maps.Equal(same, versions) {
		t.Errorf("opened again, versions %v: %s\nbefore, versions %v: %s", same, again, versions, before)
	}
	less, _ := statuses("addressPools: [{name: public, addresses: [203.0.113.4/32]}]\n", false)
	for _, want := range []string{
		`"message":"address 203.0.113.0: not in pool public"`, `"address":"203.0.113.0"`, `"address":"203.0.113.1"`,
		`"message":"address 203.0.113.9: not in pool public"`, `"address":"203.0.113.9"`,
	} {
		if !strings.Contains(less, want) {
			t.Errorf("a policy that allows less: want %s in\n%s", want, less)
		}
	}
	more, _ := statuses(policy, false)
	if more != before {
		t.Errorf("the first policy again:\n%s, want\n%s", more, before)
	}
}

// A project can't use more of the nodes than the policy allows. If a new policy allows less, the
// oldest load balancers are served.
func TestProjectQuota(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	const pools = "addressPools: [{name: public, addresses: [203.0.113.0/28]}]\nservices: "
	a := newAPIOf(t, openEmbedded(t, path, pools+"{maxPorts: 2, perNamespace: {services: 3}}"), 1)
	listeners := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"l%d","port":%d}`, i, i+1))
		}
		return `{"forward":"nat","listeners":[` + strings.Join(all, ",") + `]}`
	}
	a.must(403, "web", "PUT", base+"/a", listeners(3))
	for _, name := range []string{"/d", "/e", "/f"} {
		a.must(201, "web", "PUT", base+name, listeners(0))
	}
	a.must(403, "web", "PUT", base+"/g", listeners(0)) // an address counts, too
	for _, name := range []string{"/d", "/e", "/f"} {
		a.must(204, "web", "DELETE", base+name, "")
	}
	a.must(201, "web", "PUT", base+"/a", listeners(1))
	a.must(201, "web", "PUT", base+"/b", listeners(2))
	for _, path := range []string{"/a", "/c"} {
		got := a.must(403, "web", "PUT", base+path, listeners(2)).body
		if !strings.Contains(got, "are more than 3 (LoadBalancerGroup default, spec.services.perNamespace.services)") {
			t.Errorf("%s: %s", path, got)
		}
	}
	a.must(201, "other", "PUT", "/v1/projects/other/loadbalancers/a", listeners(2))
	a.must(200, "web", "PUT", base+"/b", listeners(1))
	a.must(200, "web", "PUT", base+"/a", listeners(2))
	if err := a.store.(*embeddedStore).Close(); err != nil {
		t.Fatal(err)
	}

	s := openEmbedded(t, path, pools+"{perNamespace: {services: 1}}")
	a = newAPIOf(t, s, 1)
	lines := nextLines(t, s, follow(t, s))
	if got := a.must(200, "web", "GET", base+"/a/status", "").body; !strings.Contains(got, `"provisioningStatus":"ERROR"`) || !strings.Contains(got, "are more than 1") {
		t.Errorf("a project that uses more than a new policy allows: %s", got)
	}
	if n := strings.Count(lines, `"port":`); n != 1 { // the listener of b
		t.Errorf("nodes have %d listeners, want 1:\n%s", n, lines)
	}
	a.must(403, "web", "PUT", base+"/b", listeners(2))
	a.must(200, "web", "PUT", base+"/a", listeners(1)) // less, but still too much
	a.must(204, "web", "DELETE", base+"/b", "")
	a.must(200, "web", "PUT", base+"/a", `{"forward":"ipip","listeners":[{"name":"l","port":1}]}`)
	if got := a.must(200, "web", "GET", base+"/a/status", "").body; !strings.Contains(got, `"provisioningStatus":"ACTIVE"`) {
		t.Errorf("a project that uses what it may: %s", got)
	}
}

// Two projects may have one firewall mark: nodes get another number within the policy's bits for each.
// Without bits a load balancer with a mark is refused.
func TestFirewallMarks(t *testing.T) {
	const pools = "addressPools: [{name: public, addresses: [203.0.113.0/28]}]\n"
	const body = `{"forward":"nat","firewallMark":16384,"listeners":[{"name":"l","port":1}]}`
	s := openEmbedded(t, filepath.Join(t.TempDir(), "data"), pools+"dataPlane: {firewallMarkMask: 0xff0000}")
	a := newAPIOf(t, s, 1)
	numbers := map[int64]bool{}
	for _, project := range []string{"web", "other"} {
		a.must(201, project, "PUT", "/v1/projects/"+project+"/loadbalancers/a", body)
	}
	for _, b := range s.all(t) {
		number := s.served(b).Spec.FirewallMark
		if numbers[number] = true; number == 0 || number&^0xff0000 != 0 {
			t.Errorf("nodes get the mark %#x", number)
		}
	}
	if len(numbers) != 2 {
		t.Errorf("two projects have the marks %v", numbers)
	}
	a = newAPIOf(t, openEmbedded(t, filepath.Join(t.TempDir(), "data"), pools), 1)
	if got := a.must(422, "web", "PUT", base+"/a", body).body; !strings.Contains(got, `"field":"firewallMark"`) || !strings.Contains(got, "firewallMarkMask") {
		t.Error(got)
	}
}

// A load balancer that needs IPVS is refused unless the policy allows it.
func TestIPVSAllowed(t *testing.T) {
	const pools = "addressPools: [{name: public, addresses: [203.0.113.0/28]}]\n"
	const body = `{"forward":"nat","listeners":[{"name":"l","port":1,"pool":"p"}],"pools":[{"name":"p","scheduler":"lc"}]}`
	a := newAPIOf(t, openEmbedded(t, filepath.Join(t.TempDir(), "data"), pools), 1)
	if got := a.must(422, "web", "PUT", base+"/a", body).body; !strings.Contains(got, `"field":"pools[0].scheduler"`) || !strings.Contains(got, "spec.dataPlane.ipvs") {
		t.Error(got)
	}
	a = newAPIOf(t, openEmbedded(t, filepath.Join(t.TempDir(), "data"), pools+"dataPlane: {ipvs: true}"), 1)
	a.must(201, "web", "PUT", base+"/a", body)
}

// A load balancer that a new policy doesn't serve is served once another one of its project uses less.
func TestQuotaFreed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	open := func(services int) *api {
		policy := fmt.Sprintf("addressPools: [{name: public, addresses: [203.0.113.0/28]}]\nservices: {perNamespace: {services: %d}}", services)
		return newAPIOf(t, openEmbedded(t, path, policy), 1)
	}
	a := open(4)
	const one, two = `{"forward":"nat","listeners":[{"name":"l","port":1}]}`, `{"forward":"nat","listeners":[{"name":"l","port":1},{"name":"m","port":2}]}`
	a.must(201, "web", "PUT", base+"/a", two)
	a.must(201, "web", "PUT", base+"/b", two)
	for _, step := range []struct {
		services           int
		method, body, uses string
	}{
		{3, "PUT", one, "less"},
		{2, "DELETE", "", "nothing"},
	} {
		store := a.store.(*embeddedStore)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		a = open(step.services)
		store = a.store.(*embeddedStore)
		f := follow(t, store)
		before := nextLines(t, store, f)
		if got := a.must(200, "web", "GET", base+"/b/status", "").body; !strings.Contains(got, "are more than") {
			t.Fatalf("%d services: b is served: %s\n%s", step.services, got, before)
		}
		a.do(0, "web", step.method, base+"/a", step.body)
		if got := a.must(200, "web", "GET", base+"/b/status", "").body; !strings.Contains(got, `"provisioningStatus":"ACTIVE"`) {
			t.Errorf("a uses %s: b is %s", step.uses, got)
		}
		if lines := nextLines(t, store, f); !strings.Contains(lines, `"port":2`) {
			t.Errorf("a uses %s: nodes get\n%s", step.uses, lines)
		}
	}
}

// A new policy that allows none of the members of a large load balancer doesn't keep the server from
// starting, though the reasons in its status make it larger than a write may make it.
func TestPolicyChangeOfLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	const pools = "addressPools: [{name: public, addresses: [\"2001:db8:2::/64\"]}]\n"
	s := openEmbedded(t, path, pools+"loadBalancers: {memberNetworks: [\"2001:db8::/32\"]}\n")
	a := newAPIOf(t, s, 1)
	var listeners, all []string
	for i := range 30 {
		var members []string
		for j := range 256 {
			members = append(members, fmt.Sprintf(`{"address":"2001:db8:1111:1111:1111:1111:%x:%x","port":1}`, i+1, j+1))
		}
		listeners = append(listeners, fmt.Sprintf(`{"name":"l%d","port":%d,"pool":"p%d"}`, i, i+1, i))
		all = append(all, fmt.Sprintf(`{"name":"p%d","members":[%s]}`, i, strings.Join(members, ",")))
	}
	large := fmt.Sprintf(`{"forward":"nat","ipFamily":"IPv6","listeners":[%s],"pools":[%s]}`, strings.Join(listeners, ","), strings.Join(all, ","))
	a.must(201, "web", "PUT", base+"/large", large)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openEmbedded(t, path, pools+"services: {perNamespace: {services: 60}}\n")
	a = newAPIOf(t, s, 1)
	if got := a.must(200, "web", "GET", base+"/large/status", "").body; !strings.Contains(got, "members can't be served") {
		t.Errorf("%.500s", got)
	}
	a.must(413, "web", "PUT", base+"/other", large) // and takes nothing of the quota
	a.must(201, "web", "PUT", base+"/small", `{"forward":"nat","ipFamily":"IPv6"}`)
	a.must(204, "web", "DELETE", base+"/large/pools/p1/members/[2001:db8:1111:1111:1111:1111:2:1]:1", "")
	lines := nextLines(t, s, follow(t, s))
	if len(lines) > 4<<20 {
		t.Errorf("nodes get %d bytes", len(lines))
	}
}
