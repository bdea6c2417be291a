// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Image has the contents of a container image that is made from nothing.
type Image struct {
	// Name is the whole name, as "localhost/web:1". Nodes have it under this name and
	// never pull it (imagePullPolicy: Never).
	Name string
	// Programs of this machine, by their names or paths: each is in the
	// image at the same path with the libraries that it needs.
	Programs []string
	// Files are others, by their paths in the image, and Copies such as are copied
	// from a path of this machine.
	Files  map[string]string
	Copies map[string]string
	// Entrypoint is the image's command, StopSignal the signal that stops it; empty
	// for SIGTERM.
	Entrypoint []string
	StopSignal string
}

// Build makes the image and returns the path of its OCI archive. Nothing of it is
// left on the machine after the test.
func (i Image) Build(t testing.TB) string {
	t.Helper()
	needRoot(t)
	archive, err := i.build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatalf("image %s: %v", i.Name, err)
	}
	return archive
}

func (i Image) build(ctx context.Context, dir string) (string, error) {
	root := filepath.Join(dir, "root")
	if err := i.fill(ctx, root); err != nil {
		return "", err
	}
	storage := []string{
		"--root", filepath.Join(dir, "storage"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs",
	}
	file := filepath.Join(dir, "Containerfile")
	if err := os.WriteFile(file, []byte(i.containerfile()), 0o600); err != nil {
		return "", err
	}
	base := filepath.Base(i.Name)
	archive := filepath.Join(dir, strings.ReplaceAll(base, ":", "-")+".tar")
	for _, args := range [][]string{
		{"build", "--quiet", "--tag", i.Name, "--file", file, root},
		{"push", "--quiet", i.Name, "oci-archive:" + archive + ":" + i.Name},
	} {
		args = append(slices.Clone(storage), args...)
		if out, err := exec.CommandContext(ctx, "buildah", args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("buildah %s: %w: %s", args[len(storage)], err, bytes.TrimSpace(out))
		}
	}
	return archive, nil
}

// containerfile copies all that is in the root folder.
func (i Image) containerfile() string {
	text := "FROM scratch\nCOPY . /\n"
	if len(i.Entrypoint) > 0 {
		quoted := make([]string, len(i.Entrypoint))
		for n, word := range i.Entrypoint {
			quoted[n] = fmt.Sprintf("%q", word)
		}
		text += "ENTRYPOINT [" + strings.Join(quoted, ", ") + "]\n"
	}
	if i.StopSignal != "" {
		text += "STOPSIGNAL " + i.StopSignal + "\n"
	}
	return text
}

// fill makes the folder that is the image's root.
func (i Image) fill(ctx context.Context, root string) error {
	if err := os.MkdirAll(filepath.Join(root, "tmp"), 0o755); err != nil {
		return err
	}
	copies := maps.Clone(i.Copies)
	if copies == nil {
		copies = map[string]string{}
	}
	for _, p := range i.Programs {
		path, err := exec.LookPath(p)
		if err != nil {
			return err
		}
		libraries, err := librariesOf(ctx, path)
		if err != nil {
			return err
		}
		for _, file := range append(libraries, path) {
			copies[file] = file
		}
	}
	for to, from := range copies {
		text, err := os.ReadFile(from)
		if err == nil {
			err = place(filepath.Join(root, to), text, 0o755)
		}
		if err != nil {
			return err
		}
	}
	for to, text := range i.Files {
		if err := place(filepath.Join(root, to), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func place(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}

// librariesOf returns the paths of the libraries that ldd(1) names, and of the
// loader; a static program has none. Lines are like "libc.so.6 => /lib/libc.so.6
// (0x…)" and "/lib64/ld-linux-x86-64.so.2 (0x…)".
func librariesOf(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil {
		if bytes.Contains(out, []byte("not a dynamic executable")) {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	var paths []string
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			paths = append(paths, word)
		}
	}
	return paths, nil
}

// importImage gives an image to the node's containerd, which may not see the file.
func (n *Node) importImage(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", "-")
	cmd.Stdin = f
	_, err = n.output(cmd)
	return err
}
