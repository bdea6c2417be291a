// SPDX-License-Identifier: Apache-2.0

// Package image_test checks the container image: its contents, and that builds are
// reproducible.
package image_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
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
	cmd := exec.CommandContext(t.Context(), "../../scripts/image.sh", binary, archive, "localhost/fairlead:v9", "v9", "cafe")
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	out, err := cmd.CombinedOutput() // scripts/install-deps.sh image
	if err != nil {
		t.Fatalf("image.sh: %v\n%s", err, out)
	}
	_, said, _ = strings.Cut(string(out), ": ")
	return archive, said
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
	_, first := build(t, one)
	_, second := build(t, other)
	if first != second || !strings.HasPrefix(first, "localhost/fairlead:v9 sha256:") {
		t.Errorf("%q, and then %q", first, second)
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

// The image has one file, an unprivileged user, and labels.
func TestContents(t *testing.T) {
	archive, _ := build(t, binary(t, 0o700))
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, blobs := unpack(t, file)
	read := func(digest string, into any) {
		t.Helper()
		if err := json.Unmarshal(blobs["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")], into); err != nil {
			t.Fatalf("%s: %v", digest, err)
		}
	}
	var index struct{ Manifests []struct{ Digest string } }
	if err := json.Unmarshal(blobs["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index: %v, %s", err, blobs["index.json"])
	}
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	read(index.Manifests[0].Digest, &manifest)
	var config struct {
		Created time.Time
		Config  struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	read(manifest.Config.Digest, &config)
	if len(manifest.Layers) != 1 {
		t.Fatalf("%d layers", len(manifest.Layers))
	}
	checkLayer(t, blobs["blobs/sha256/"+strings.TrimPrefix(manifest.Layers[0].Digest, "sha256:")])

	const label = "org.opencontainers.image."
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/fairlead"}) || config.Created.Unix() != 1700000000 ||
		c.Labels[label+"version"] != "v9" || c.Labels[label+"revision"] != "cafe" || c.Labels[label+"created"] != "2023-11-14T22:13:20Z" {
		t.Errorf("%+v", config)
	}
}

func checkLayer(t *testing.T, layer []byte) {
	t.Helper()
	plain, err := gzip.NewReader(strings.NewReader(string(layer)))
	if err != nil {
		t.Fatal(err)
	}
	files, contents := unpack(t, plain)
	for name, header := range files {
		switch {
		case header.Typeflag == tar.TypeDir && header.Mode&0o777 == 0o755:
		case name == "usr/bin/fairlead" && header.Mode&0o7777 == 0o755 && string(contents[name]) == "the binary":
		default:
			t.Errorf("%s, mode %o, in the image", name, header.Mode)
		}
	}
	if files["usr/bin/fairlead"] == nil {
		t.Error("no binary in the image")
	}
}
