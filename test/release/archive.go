// SPDX-License-Identifier: Apache-2.0

// Package release reads OCI archives: the images and charts of releases. The tests of this
// package make releases of this tree with "make release" and look at their files; deploy/image
// tests the image alone, and test/e2e/kubernetes installs a release in a cluster.
package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"
)

// File is a file of a tar archive.
type File struct {
	Mode    fs.FileMode
	Content []byte
}

// Archive is an OCI layout in a tar archive: its files by name.
type Archive map[string]File

// Document has the fields of an OCI index or manifest that tests look at.
type Document struct {
	Manifests []struct {
		Digest      string
		Platform    struct{ OS, Architecture string }
		Annotations map[string]string
	}
	Config struct{ Digest string }
	Layers []struct{ Digest string }
}

// Open reads an OCI archive.
func Open(path string) (Archive, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return unpack(file)
}

// unpack reads a tar archive.
func unpack(from io.Reader) (map[string]File, error) {
	all := map[string]File{}
	for files := tar.NewReader(from); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(files)
		}
		if err != nil {
			return nil, err
		}
		all[header.Name] = File{header.FileInfo().Mode(), content}
	}
}

// Blob returns the content with this digest.
func (a Archive) Blob(digest string) ([]byte, error) {
	content := a["blobs/"+strings.Replace(digest, ":", "/", 1)].Content
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != digest {
		return nil, fmt.Errorf("blob %s: it has digest %s", digest, got)
	}
	return content, nil
}

// Top returns the only entry of the archive's index: its name, which is an image's name or
// a chart's version, and the digest and document that it leads to.
func (a Archive) Top() (name, digest string, top Document, err error) {
	var index Document
	if err := json.Unmarshal(a["index.json"].Content, &index); err != nil {
		return "", "", top, fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) != 1 {
		return "", "", top, fmt.Errorf("index.json: %d entries, want 1", len(index.Manifests))
	}
	entry := index.Manifests[0]
	top, err = a.Document(entry.Digest)
	return entry.Annotations["org.opencontainers.image.ref.name"], entry.Digest, top, err
}

// Document returns the index or manifest with this digest.
func (a Archive) Document(digest string) (Document, error) {
	var d Document
	text, err := a.Blob(digest)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(text, &d)
}

// Files returns the files of the image whose manifest has this digest, by name.
func (a Archive) Files(digest string) (map[string]File, error) {
	manifest, err := a.Document(digest)
	if err != nil {
		return nil, err
	}
	all := map[string]File{}
	for _, layer := range manifest.Layers {
		packed, err := a.Blob(layer.Digest)
		if err != nil {
			return nil, err
		}
		plain, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
		files, err := unpack(plain)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
		maps.Copy(all, files)
	}
	return all, nil
}
