// SPDX-License-Identifier: Apache-2.0

// Package release reads the OCI archives of a release: its image, and its chart. The tests
// of this package make releases of this tree with "make release" and look at their files;
// test/e2e/kubernetes installs one in a cluster.
package release

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Archive is an OCI layout in a tar archive: the contents of its files by name.
type Archive map[string][]byte

// Document has the fields of an OCI index or manifest that tests look at.
type Document struct {
	Manifests []struct {
		Digest      string
		Platform    struct{ OS, Architecture string }
		Annotations map[string]string
	}
	Layers []struct{ Digest string }
}

// Open reads an OCI archive.
func Open(path string) (Archive, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return Unpack(file)
}

// Unpack reads a tar archive.
func Unpack(from io.Reader) (Archive, error) {
	contents := Archive{}
	for files := tar.NewReader(from); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return contents, nil
		}
		if err == nil {
			contents[header.Name], err = io.ReadAll(files)
		}
		if err != nil {
			return nil, err
		}
	}
}

// Blob returns what has this digest.
func (a Archive) Blob(digest string) ([]byte, error) {
	content := a["blobs/"+strings.Replace(digest, ":", "/", 1)]
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != digest {
		return nil, fmt.Errorf("blob %s: it has digest %s", digest, got)
	}
	return content, nil
}

// Top returns the only entry of the archive's index: its name, which is an image's name or
// a chart's version, and the digest and document that it leads to.
func (a Archive) Top() (name, digest string, top Document, err error) {
	var index Document
	if err := json.Unmarshal(a["index.json"], &index); err != nil {
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
