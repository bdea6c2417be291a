// SPDX-License-Identifier: Apache-2.0

// Package image_test checks the container image: its contents for each architecture, and
// that builds are reproducible.
package image_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/test/release"
)

// build builds an image of a file, and returns its archive and the output of the
// script.
func build(t *testing.T, binary string) (archive, said string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("buildah needs root, or a user's own namespaces")
	}
	for _, read := range []string{"../../scripts/image.sh", "Containerfile"} {
		readFile(t, read) // a cached result depends on these files
	}
	archive = filepath.Join(t.TempDir(), "image.tar")
	cmd := exec.CommandContext(t.Context(), "../../scripts/image.sh", archive, "localhost/fairlead:v9", "v9", "cafe", "../../LICENSE",
		"amd64="+binary, "arm64="+binary)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	out, err := cmd.CombinedOutput() // scripts/install-deps.sh image
	if err != nil {
		t.Fatalf("image.sh: %v\n%s", err, out)
	}
	return archive, string(out)
}

// binary writes a file in place of the binary, with permissions that depend on the
// umask.
func binary(t *testing.T, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "any-name")
	if err := os.WriteFile(path, []byte("the binary"), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// The same binary gives the same image, at any time and place.
func TestReproducible(t *testing.T) {
	one, other := binary(t, 0o755), binary(t, 0o700)
	if err := os.Chtimes(other, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	a, first := build(t, one)
	b, second := build(t, other)
	if first != second || !strings.HasPrefix(first, "localhost/fairlead:v9 sha256:") {
		t.Errorf("%q, and then %q", first, second)
	}
	if !bytes.Equal(readFile(t, a), readFile(t, b)) {
		t.Error("the archives differ")
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// The image of each architecture has the binary and licences, an unprivileged user, and
// labels.
func TestContents(t *testing.T) {
	path, said := build(t, binary(t, 0o700))
	archive, err := release.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	name, digest, index, err := archive.Top()
	if err != nil || name != "localhost/fairlead:v9" || strings.TrimSpace(said) != name+" "+digest {
		t.Fatalf("index: %v, %s %s; the script says %s", err, name, digest, said)
	}
	var found []string
	for _, m := range index.Manifests {
		found = append(found, m.Platform.OS+"/"+m.Platform.Architecture)
		checkImage(t, archive, m.Digest)
	}
	if !slices.Equal(found, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("images of %q", found)
	}
}

// checkImage checks the image of one architecture.
func checkImage(t *testing.T, archive release.Archive, digest string) {
	t.Helper()
	all, err := archive.Files(digest)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, f := range all {
		if f.Mode != fs.ModeDir|0o755 {
			files[f.Mode.String()+" "+name] = string(f.Content)
		}
	}
	want := map[string]string{
		"-rwxr-xr-x usr/bin/fairlead":                    "the binary",
		"-rw-r--r-- usr/share/doc/fairlead/LICENSES.txt": string(readFile(t, "../../LICENSE")),
	}
	if !maps.Equal(files, want) {
		t.Errorf("the image has %q, want %q", files, want)
	}

	manifest, err := archive.Document(digest)
	if err != nil {
		t.Fatal(err)
	}
	text, err := archive.Blob(manifest.Config.Digest)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Created time.Time
		Config  struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	const label = "org.opencontainers.image."
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/fairlead"}) || config.Created.Unix() != 1700000000 ||
		c.Labels[label+"version"] != "v9" || c.Labels[label+"revision"] != "cafe" || c.Labels[label+"created"] != "2023-11-14T22:13:20Z" {
		t.Errorf("%+v", config)
	}
}
