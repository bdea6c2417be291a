// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/bench"
	"fairlead.io/fairlead/lab/netlab"
	"fairlead.io/fairlead/test/e2e/harness"
	"fairlead.io/fairlead/test/guide"
	"fairlead.io/fairlead/test/measured"
)

// In a container of Podman a balancer runs with the lines of docs/guides/bare-metal.md: it is stopped, started,
// killed and started again under load. Without one of the lines' options its error names the missing right.
func TestContainer(t *testing.T) {
	topology, err := netlab.ECMP(netlab.ECMPOptions{Forward: lb.L2DSR, Balancers: 2, Servers: 2, Router: netlab.FRR})
	if err != nil {
		t.Fatal(err)
	}
	topology.Learned, topology.Probes = nil, nil
	topology.Host("lb1").Processes = nil
	l := bringUp(t, "container", topology)
	c := newContainer(t, l)

	load, run, _ := strings.Cut(c.lines, "podman run")
	began := time.Now()
	c.run(t, load)
	starts := []time.Duration{time.Since(began)}
	began = time.Now()
	c.run(t, "podman run"+run)
	l.awaitRouteOf(t, harness.VIP4, "lb1", "lb2")
	starts = append(starts, time.Since(began))
	if said := c.run(t, "podman exec fairlead fairlead routes"); !strings.Contains(said, harness.VIP4) {
		t.Errorf("fairlead routes in the container:\n%s", said)
	}
	w := l.Load(t, "client", harness.LoadLimit, harness.Origin(harness.VIP4))
	c.run(t, "podman stop fairlead")
	l.awaitRouteOf(t, harness.VIP4, "lb2")
	c.run(t, "podman start fairlead")
	l.awaitRouteOf(t, harness.VIP4, "lb1", "lb2")
	c.run(t, "podman kill --signal KILL fairlead; podman wait fairlead; podman start fairlead")
	l.awaitRouteOf(t, harness.VIP4, "lb1", "lb2")
	w.End(t)
	measured.Write(t, "../../..", "container", func(r *bench.Report) { c.measure(t, l, r, starts) })
	c.run(t, "podman rm --force --time 75 fairlead")

	_, foreground, _ := strings.Cut(c.lines, "podman run --detach")
	foreground = "podman run --rm" + strings.Replace(foreground, "--restart unless-stopped", "", 1)
	for name, without := range map[string]struct{ option, want string }{
		"seccomp": {"--security-opt seccomp=unconfined", "fairlead preflight says what this process may not do"},
		"bpffs":   {"--volume " + c.bpffs + ":/sys/fs/bpf", "mount"},
	} {
		line := strings.Replace(foreground, without.option, "", 1)
		said, err := c.sh(t, line)
		if exit := new(exec.ExitError); !errors.As(err, &exit) || !strings.Contains(said, without.want) {
			t.Errorf("without %s: %v, want an error about %q:\n%s", name, err, without.want, said)
		}
		if name != "seccomp" {
			continue
		}
		said, _ = c.sh(t, strings.Replace(line, " agent ", " preflight ", 1))
		if !strings.Contains(said, "the system call bpf is refused in spite of CAP_BPF") {
			t.Errorf("fairlead preflight:\n%s", said)
		}
	}
}

// container is the balancer lb1 of the lab in a container.
type container struct {
	// lines are from the guide, with paths of the lab.
	lines string
	// env has a Podman that stores everything in the test's folder.
	env   []string
	bpffs string
}

func newContainer(t *testing.T, l *lab) *container {
	t.Helper()
	dir, lb1 := t.TempDir(), l.State().Host("lb1")
	c := &container{bpffs: filepath.Join(dir, "bpf")}
	run := filepath.Join(dir, "fairlead")
	if err := errors.Join(os.Mkdir(c.bpffs, 0o700), os.Mkdir(run, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", c.bpffs, "bpf", 0, ""); err != nil {
		t.Fatalf("mount a BPF file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(c.bpffs, 0); err != nil {
			t.Errorf("unmount the BPF file system: %v", err)
		}
	})
	podman, err := exec.LookPath("podman")
	if err != nil {
		t.Fatalf("%v: scripts/install-deps.sh test-ci", err)
	}
	storage := filepath.Join(dir, "storage")
	writeFile(t, dir, "podman", "#!/bin/sh\nexec "+podman+" --root "+storage+" --runroot "+storage+"/run --tmpdir "+storage+
		"/tmp --storage-driver vfs --cgroup-manager cgroupfs --events-backend none \"$@\"\n")
	// A machine that is a container itself may not raise limits, as Podman does by default.
	writeFile(t, dir, "containers.conf", "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n[engine]\nruntime = \"runc\"\nlock_type = \"file\"\n")
	c.env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CONTAINERS_CONF="+filepath.Join(dir, "containers.conf"))
	t.Cleanup(func() {
		if said, err := c.sh(t, "podman rm --force --all --time 1"); err != nil {
			t.Errorf("podman rm: %v\n%s", err, said)
		}
	})

	// The one in PATH may be for the race detector, with libraries that the image doesn't have.
	fairlead := filepath.Join(dir, "binary")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", fairlead, "../../../cmd/fairlead")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	image := filepath.Join(dir, "image.tar")
	if said, err := c.sh(t, strings.Join([]string{
		"../../../scripts/image.sh", image, "localhost/fairlead:0.1.0", "0.1.0", "cafe", "../../../LICENSE", runtime.GOARCH + "=" + fairlead,
	}, " ")); err != nil {
		t.Fatalf("image.sh: %v\n%s", err, said)
	}
	for _, block := range guide.Blocks(t, "../../../docs/guides/bare-metal.md") {
		if block.Target == "container" {
			c.lines = block.Text
		}
	}
	for _, change := range []struct{ shown, here string }{
		{"bin/fairlead-image.tar", image},
		{"--network host", "--network ns:/run/netns/" + lb1.Namespace},
		{"--volume /etc/fairlead:", "--volume " + lb1.Directory + ":"},
		{"--volume fairlead:", "--volume " + run + ":"},
		{"--volume /sys/fs/bpf:", "--volume " + c.bpffs + ":"},
	} {
		if strings.Count(c.lines, change.shown) != 1 {
			t.Fatalf("the guide's lines have no %q:\n%s", change.shown, c.lines)
		}
		c.lines = strings.Replace(c.lines, change.shown, change.here, 1)
	}
	return c
}

// measure adds the size of the image, how long it was loaded, and the times from the start of a container until its
// route is in the router's table: the first one, and of ten that start again.
func (c *container) measure(t *testing.T, l *lab, r *bench.Report, starts []time.Duration) {
	t.Helper()
	size, err := strconv.ParseFloat(strings.TrimSpace(c.run(t, "podman image inspect --format '{{.Size}}' localhost/fairlead:0.1.0")), 64)
	if err != nil {
		t.Fatal(err)
	}
	const megabyte = 1e6
	r.Add("image_mb", "MB", bench.Runs{size / megabyte}, nil)
	r.Judge("megabytes of the image, about", measured.Papers, bench.AtMost(100), size/megabyte)
	r.Add("load_ms", "ms", measured.Runs(starts[0]), nil)
	r.Add("first_start_ms", "ms", measured.Runs(starts[1]), nil)
	var again []time.Duration
	for range 10 {
		c.run(t, "podman stop fairlead")
		l.awaitRouteOf(t, harness.VIP4, "lb2")
		began := time.Now()
		c.run(t, "podman start fairlead")
		l.awaitRouteOf(t, harness.VIP4, "lb1", "lb2")
		again = append(again, time.Since(began))
	}
	times := measured.Runs(again...)
	r.Add("start_ms", "ms", times, nil)
	r.Judge("milliseconds from the start of the container to the route, median", measured.Papers, bench.AtMost(1000), times.Median())
}

// sh runs lines of a shell and returns their output.
func (c *container) sh(t *testing.T, lines string) (string, error) {
	t.Helper()
	cmd := exec.Command("sh", "-e", "-c", lines) // also when the test's context has ended
	cmd.Env = c.env
	said, err := cmd.CombinedOutput()
	return string(said), err
}

func (c *container) run(t *testing.T, lines string) string {
	t.Helper()
	said, err := c.sh(t, lines)
	if err != nil {
		t.Fatalf("%s: %v\n%s", lines, err, cmp.Or(said, "nothing was printed"))
	}
	return said
}
