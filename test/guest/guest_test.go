// SPDX-License-Identifier: Apache-2.0

// Package guest runs Go tests in a guest kernel, for what the host's kernel may
// lack: tunnel and VLAN devices now, IPVS later.
//
// It compiles the tests of a package (test/guest/packets) to one static binary, packs it as the
// first process with the kernel modules that it needs into an initial RAM file
// system, and boots the distribution's kernel with it in QEMU.
// The guest has no disk, no network and nothing of the host's files. Every test
// of the guest becomes a sub-test of the host's, so that counts, failures and
// skips are true.
//
// The processor is emulated, since many hosts can't nest virtual machines: the
// guest shows what is right, never what is fast.
package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Bounds on the guest's tests, which then say where they are, and on all that
// Run does, the download of a kernel included.
const (
	testTimeout  = "12m"
	totalTimeout = 16 * time.Minute
)

// Run runs the tests of a package of this module, compiled with the build tag
// "guest", as root of a guest machine in which the named kernel modules are
// loaded. They become sub-tests of t. They must not call t.Parallel.
func Run(t *testing.T, pkg string, modules ...string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the guest's kernel and processor are x86-64")
	}
	needTools(t, qemu, "apt-get", "dpkg-deb", "go")
	ctx, cancel := context.WithTimeout(t.Context(), totalTimeout)
	defer cancel()

	k, err := installedKernel(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	image, err := pack(ctx, k, pkg, modules, dir)
	if err != nil {
		t.Fatal(err)
	}
	m := machine{
		kernel:    k.image,
		initramfs: image,
		arguments: []string{"-test.v=test2json", "-test.timeout=" + testTimeout},
		console:   filepath.Join(dir, "console"),
	}
	if err := replay(ctx, t, m); err != nil {
		t.Error(err)
	}
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
			t.Fatalf("%v: scripts/install-deps.sh test installs it", err)
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

// TestGuest is the packets' proof by devices of the kernel, which no program of
// this project has made to understand them.
func TestGuest(t *testing.T) {
	Run(t, "./packets", "veth", "bridge", "ipip", "sit", "ip6_tunnel", "8021q", "fou", "vxlan", "geneve", "sch_ingress", "cls_bpf")
}

// TestIPVS is the data plane on the kernel's IPVS.
func TestIPVS(t *testing.T) {
	Run(t, "../../internal/dataplane/ipvs", "veth", "bridge", "ipip", "ip6_tunnel", "fou", "fou6", "crc32c_generic",
		"tun", "nf_conntrack", "nf_nat", "nf_tables", "nft_chain_nat", "nft_ct", "nft_masq",
		"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_sh", "ip_vs_mh")
}
