// SPDX-License-Identifier: Apache-2.0

// Package guest runs tests in guest kernels, for what the host's kernel may lack (tunnel
// and VLAN devices, IPVS), and on every kernel and architecture that is supported.
//
// Each kernel boots once, in QEMU, with an initial RAM file system of the kernel modules,
// the test binaries of several packages, the project's executables and some programs of the
// distribution. The guest has no disk, no network and nothing else of the host. Every test
// of the guest becomes a sub-test of the host's, KERNEL/PACKAGE/TEST, so that counts,
// failures and skips are true.
//
// The processor is emulated, since many hosts can't nest virtual machines: the
// guest shows what is right, never what is fast.
package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// endTime is the part of the tests' time (go test -timeout) that is left to report a guest that
// doesn't end.
const endTime = 30 * time.Second

// testArguments are those of every test binary. Emulated processors are slow: parallel tests
// would only run into each other's time limits, and tests that say so repeat less in short mode.
// Skipped are tests of what kernels before 6.4 report differently, long ones of the control plane
// alone or of its tables, and floods, which take longer there than records are kept.
var testArguments = []string{
	"-test.v=test2json", "-test.parallel=1", "-test.short",
	"-test.skip=^(TestMemoryIsAsDocumented|TestHistories|TestLargestTables|TestTablesGrow|TestPlacesAreSpread|TestVIPPlacesAre(Spread|Secret)|TestFlood(EvictsNo(Flow|Session|Client)|TakesNoPort)|TestPlacesOfTooManySessions)$",
}

// packagesEnv replaces the packages by those that it lists, separated by blanks, in all kernels,
// and testsEnv is a pattern of the tests that run in guests (go test -run selects what is shown of
// them). internal/dataplane/xdp/packets, for example, takes some ten minutes of a processor, and
// half an hour on arm64.
const (
	packagesEnv = "FAIRLEAD_GUEST"
	testsEnv    = "FAIRLEAD_GUEST_RUN"
)

// The kernels, by the names of their sub-tests.
const (
	oldest = "linux-amd64"
	newest = "linux-6.12-amd64"
	arm    = "linux-arm64"
)

// suite is a package whose tests run in guests.
type suite struct {
	pkg string
	// on are the kernels in which they run, none for all: suites of which one kernel takes
	// minutes are spread.
	on []string
}

// suites are in the order in which they run, those that take longest last.
var suites = []suite{
	{pkg: "internal/host/preflight"},
	{pkg: "internal/dataplane/xdp/table"},
	{pkg: "internal/dataplane/xdp/program"},
	{pkg: "internal/dataplane/xdp/healthpath"},
	{"test/guest/labs", []string{oldest, arm}},
	{"internal/dataplane/ipvs", []string{newest}},
	{"internal/dataplane/xdp/packets", []string{oldest}},
}

// packagesOf are those whose tests run in a kernel.
func packagesOf(kernel string) []string {
	if named := strings.Fields(os.Getenv(packagesEnv)); len(named) > 0 {
		return named
	}
	var packages []string
	for _, s := range suites {
		if len(s.on) == 0 || slices.Contains(s.on, kernel) {
			packages = append(packages, s.pkg)
		}
	}
	return packages
}

// modules are loaded in every guest, with those on which they depend.
var modules = strings.Fields(`
	virtio_pci virtio_console crc32c_generic
	veth bridge tun dummy macvlan 8021q vxlan geneve
	ipip sit ip6_tunnel fou fou6
	sch_ingress cls_bpf sch_fq
	nf_conntrack nf_nat nf_tables nft_chain_nat nft_ct nft_masq nft_nat nft_compat
	ip_vs ip_vs_rr ip_vs_wrr ip_vs_lc ip_vs_wlc ip_vs_sh ip_vs_mh`)

// TestGuest runs the tests in all kernels.
func TestGuest(t *testing.T) {
	builds := map[string]func() (built, error){}
	for arch := range emulators() {
		builds[arch] = sync.OnceValues(func() (built, error) {
			var packages []string
			for _, target := range targets() {
				if target.arch == arch {
					packages = append(packages, packagesOf(target.name)...)
				}
			}
			slices.Sort(packages)
			return build(t.Context(), arch, t.TempDir(), slices.Compact(packages))
		})
	}
	for _, target := range targets() {
		t.Run(target.name, func(t *testing.T) {
			t.Parallel()
			needTools(t, emulators()[target.arch].program, "apt-get", "dpkg-deb", "go")
			b, err := builds[target.arch]()
			if err != nil {
				t.Fatal(err)
			}
			target.test(t, b)
		})
	}
}

// test runs the tests in one kernel.
func (target target) test(t *testing.T, b built) {
	t.Helper()
	ctx := t.Context()
	if end, limited := t.Deadline(); limited {
		before, cancel := context.WithDeadline(ctx, end.Add(-endTime))
		defer cancel()
		ctx = before
	}
	k, err := target.kernel(ctx)
	if errors.Is(err, errNoPackage) && !onDebian12() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m := &machine{
		emulator:  emulators()[target.arch],
		kernel:    k.image,
		initramfs: filepath.Join(dir, "initramfs"),
		log:       filepath.Join(dir, "console"),
	}
	if err := pack(ctx, m.initramfs, b, packagesOf(target.name), k, modules); err != nil {
		t.Fatal(err)
	}
	t.Logf("kernel %s", filepath.Base(k.image))
	if err := replay(ctx, t, m); err != nil {
		t.Error(err)
	}
}

// onDebian12 says whether the host's distribution is the one that has all kernels.
func onDebian12() bool {
	text, err := os.ReadFile("/etc/os-release")
	return err == nil && strings.Contains(string(text), "\nVERSION_CODENAME=bookworm\n")
}

// needTools ends the test if a command is missing: what make test-all installs must be
// there, unless the user can't install it.
func needTools(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		_, err := exec.LookPath(c)
		switch {
		case err == nil:
		case os.Geteuid() != 0:
			t.Skipf("%v, and only root can install it", err)
		default:
			t.Fatalf("%v: scripts/install-deps.sh test-all installs it", err)
		}
	}
}

// command runs a command that says something only if it ends badly.
func command(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}
