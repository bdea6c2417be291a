// SPDX-License-Identifier: Apache-2.0

// Package image_test checks the container image: its contents for each architecture, and
// that builds are reproducible.
package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// build builds an image of a file, and returns its archive and the output of the
// script.
func build(t *testing.T, binary string) (archive, said string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("buildah needs root, or a user's own namespaces")
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

// unpack returns the files of a tar archive by name.
func unpack(t *testing.T, from io.Reader) (files map[string]*tar.Header, contents map[string][]byte) {
	t.Helper()
	files, contents = map[string]*tar.Header{}, map[string][]byte{}
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, contents
		}
		if err == nil {
			files[header.Name] = header
			contents[header.Name], err = io.ReadAll(archive)
		}
		if err != nil {
			t.Fatal(err)
		}
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
	archive, said := build(t, binary(t, 0o700))
	_, blobs := unpack(t, bytes.NewReader(readFile(t, archive)))
	read := func(digest string, into any) {
		t.Helper()
		if err := json.Unmarshal(blobs["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")], into); err != nil {
			t.Fatalf("%s: %v", digest, err)
		}
	}
	var index struct{ Manifests []struct{ Digest string } }
	if err := json.Unmarshal(blobs["index.json"], &index); err != nil || len(index.Manifests) != 1 ||
		strings.TrimSpace(said) != "localhost/fairlead:v9 "+index.Manifests[0].Digest {
		t.Fatalf("index: %v, %s; the script says %s", err, blobs["index.json"], said)
	}
	var platforms struct {
		Manifests []struct {
			Digest   string
			Platform struct{ OS, Architecture string }
		}
	}
	read(index.Manifests[0].Digest, &platforms)
	var found []string
	for _, m := range platforms.Manifests {
		found = append(found, m.Platform.OS+"/"+m.Platform.Architecture)
		checkImage(t, blobs, read, m.Digest)
	}
	if !slices.Equal(found, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("images of %q", found)
	}
}

// checkImage checks the image of one architecture.
func checkImage(t *testing.T, blobs map[string][]byte, read func(digest string, into any), digest string) {
	t.Helper()
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	read(digest, &manifest)
	var config struct {
		Created time.Time
		Config  struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	read(manifest.Config.Digest, &config)
	files := map[string]string{}
	for _, l := range manifest.Layers {
		addLayer(t, files, blobs["blobs/sha256/"+strings.TrimPrefix(l.Digest, "sha256:")])
	}
	want := map[string]string{
		"-rwxr-xr-x usr/bin/fairlead":                    "the binary",
		"-rw-r--r-- usr/share/doc/fairlead/LICENSES.txt": string(readFile(t, "../../LICENSE")),
	}
	if !maps.Equal(files, want) {
		t.Errorf("the image has %q, want %q", files, want)
	}

	const label = "org.opencontainers.image."
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/fairlead"}) || config.Created.Unix() != 1700000000 ||
		c.Labels[label+"version"] != "v9" || c.Labels[label+"revision"] != "cafe" || c.Labels[label+"created"] != "2023-11-14T22:13:20Z" {
		t.Errorf("%+v", config)
	}
}

// addLayer adds the contents of a layer's files by mode and name.
func addLayer(t *testing.T, all map[string]string, layer []byte) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	files, contents := unpack(t, plain)
	for name, header := range files {
		if header.Typeflag != tar.TypeDir || header.Mode&0o777 != 0o755 {
			all[header.FileInfo().Mode().String()+" "+name] = string(contents[name])
		}
	}
}
