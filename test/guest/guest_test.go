// SPDX-License-Identifier: Apache-2.0

// Package guest runs tests in guest kernels, for features that the host's kernel may
// lack (tunnel and VLAN devices, IPVS), and on every kernel and architecture that is
// supported.
//
// Each guest boots once, in QEMU, with an initial RAM file system of the kernel modules,
// the test binaries of several packages, the project's executables and some programs of the
// distribution. The guest has no disk, no network and nothing else of the host. Every test
// of the guest becomes a sub-test of the host's, GUEST/PACKAGE/TEST, so that counts,
// failures and skips are true.
//
// The processor is emulated, since many hosts can't nest virtual machines: the
// guest shows correctness, never speed.
package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// endTime is the part of the tests' time (go test -timeout) that is left to report a guest that
// doesn't end.
const endTime = 30 * time.Second

// testArguments are the arguments of every test binary. Emulated processors are slow: parallel
// tests would only run into each other's time limits, and tests that say so repeat less in short
// mode.
var testArguments = []string{"-test.v=test2json", "-test.parallel=1", "-test.short"}

// skipped are tests of reports that differ in kernels before 6.4, long ones of the control plane alone
// or of its tables, those for which any kernel does, and floods, which take longer there than records
// are kept.
const skipped = "^(TestMemoryIsAsDocumented|TestHistories|TestLargestTables|TestStackDepth|TestTablesGrow|TestPlacesAreSpread|TestVIPPlace(sAreSecret|Distribution)|TestFlood(EvictsNo(Flow|Session|Client)|TakesNoPort)|TestAnsweredFloodEvictsNoConnection|TestPeerLookupConnectionsSurvive|TestPlacesOfTooManySessions)$"

// packagesEnv replaces the packages by those that it lists, separated by blanks, and testsEnv is a
// pattern of the tests that run in guests (go test -run selects the shown ones).
const (
	packagesEnv = "FAIRLEAD_GUEST"
	testsEnv    = "FAIRLEAD_GUEST_RUN"
)

// guest is a machine that boots once, and its tests.
type guest struct {
	name     string // of the sub-test
	target   target
	packages []string // in the order in which their tests run, those that take longest last
	tests    string   // a pattern; "": all
	skip     string   // continues the pattern of tests that are skipped in all guests
}

// eachPath are tests in which packets take every path through the balancer's programs.
const eachPath = "^Test(Contract|Forward|TooBig|Steering|SourceLimit|Clients(Stay|Traced)|Members|NAT|NATErrors|NATReplyTooBig|NATQUIC|" +
	"RepliesAsXDP|NATReturnPath|SameVIPInEverySegment|SegmentECN|ProbeFrames|Lookup|QUIC|Relay|Sources|TraceEnds)$"

// guests are spread over the kernels where one takes minutes. "programs" and "paths" are for every
// change: the oldest kernel's verifier takes the balancer's programs, and packets pass them. They are
// two guests, as each has one processor. IPVS's mode differs in few lines, so every change has the
// contract suite for one.
func guests() []guest {
	const xdp = "internal/dataplane/xdp/"
	preflight, labs := "internal/host/preflight", "test/guest/labs"
	all := []guest{
		{"programs", oldest, []string{xdp + "table", xdp + "program", "internal/dataplane/ipvs"}, "", "|^TestContract$/^(l2dsr|ipip|gue)$"},
		{"paths", oldest, []string{xdp + "packets"}, eachPath, ""},
		{"packets", oldest, []string{xdp + "packets"}, "", ""},
		{"contract", oldest, []string{"internal/dataplane/ipvs"}, "^TestContract$", ""},
		{"linux-amd64", oldest, []string{preflight, xdp + "healthpath", labs}, "", ""},
		{"linux-6.12-amd64", newest, []string{preflight, xdp + "table", xdp + "program", xdp + "healthpath", "internal/dataplane/ipvs"}, "", ""},
		{"linux-arm64", arm, []string{preflight, xdp + "table", xdp + "program", xdp + "healthpath", labs}, "", ""},
	}
	if named := strings.Fields(os.Getenv(packagesEnv)); len(named) > 0 {
		for i := range all {
			all[i].packages = named
		}
	}
	if tests := os.Getenv(testsEnv); tests != "" {
		for i := range all {
			all[i].tests = tests
		}
	}
	return all
}

// modules are loaded in every guest, with those on which they depend.
var modules = strings.Fields(`
	virtio_pci virtio_console crc32c_generic
	veth bridge tun dummy macvlan 8021q vxlan geneve
	ipip sit ip6_tunnel fou fou6
	sch_ingress cls_bpf sch_fq
	nf_conntrack nf_nat nf_tables nft_chain_nat nft_ct nft_masq nft_nat nft_compat
	ip_vs ip_vs_rr ip_vs_wrr ip_vs_lc ip_vs_wlc ip_vs_sh ip_vs_mh`)

// TestGuest runs the tests in all guests.
func TestGuest(t *testing.T) {
	for _, g := range guests() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			needTools(t, emulators()[g.target.arch].program, "apt-get", "dpkg-deb", "go")
			g.test(t)
		})
	}
}

// test runs the tests in one guest.
func (g guest) test(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if end, limited := t.Deadline(); limited {
		before, cancel := context.WithDeadline(ctx, end.Add(-endTime))
		defer cancel()
		ctx = before
	}
	k, err := g.target.kernel(ctx)
	if errors.Is(err, errNoPackage) && !onDebian12() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := build(ctx, g.target.arch, t.TempDir(), g.packages)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m := &machine{
		emulator:  emulators()[g.target.arch],
		kernel:    k.image,
		initramfs: filepath.Join(dir, "initramfs"),
		log:       filepath.Join(dir, "console"),
	}
	if err := pack(ctx, m.initramfs, b, g, k, modules); err != nil {
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

// needTools ends the test if a command is missing: commands that make test-all
// installs must be there, unless the user can't install them.
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
