// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
	gomodule "golang.org/x/mod/module"
)

// notInID matches characters that an SPDX identifier may not contain (section 7.2).
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

const (
	noAssertion = "NOASSERTION"
	bpfID       = spdx.ElementID("Package-bpf")
	bpfLicense  = "GPL-2.0-only OR BSD-2-Clause"
)

// bill is an SPDX document that is being written.
type bill struct {
	*spdx.Document
	version string
	modules map[string]*module
	known   map[spdx.ElementID]bool
}

// printSBOM prints an SPDX 2.3 document of executables, with the modules that the Go linker
// recorded in each, and of Python wheels, which have no code of others.
func printSBOM(w io.Writer, version, created string, files []string) error {
	all, err := modules()
	if err != nil {
		return err
	}
	b := &bill{
		version: version, modules: all, known: map[spdx.ElementID]bool{},
		Document: &spdx.Document{
			SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
			DocumentName: "fairlead-" + version,
			CreationInfo: &spdx.CreationInfo{Created: created, Creators: []spdx.Creator{{CreatorType: "Tool", Creator: "fairlead-release"}}},
		},
	}
	b.add(&spdx.Package{
		PackageSPDXIdentifier: bpfID, PackageName: "fairlead-bpf", PackageVersion: version,
		PackageLicenseConcluded: bpfLicense, PackageLicenseDeclared: bpfLicense,
		PackageComment: "BPF programs, embedded in the executables; compiled with headers of libbpf (LGPL-2.1 OR BSD-2-Clause)",
	})
	sums := sha256.New()
	for _, path := range files {
		add := b.addBinary
		if filepath.Ext(path) == ".whl" {
			add = b.addWheel
		}
		sum, err := add(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		fmt.Fprintln(sums, sum)
	}
	// The same bytes have the same document, others have another one.
	b.DocumentNamespace = fmt.Sprintf("https://fairlead.io/spdx/fairlead-%s-%x", version, sums.Sum(nil)[:16])
	if err := spdxlib.ValidateDocument(b.Document); err != nil {
		return err
	}
	return spdxjson.Write(b.Document, w, spdxjson.Indent("  "))
}

// addFile adds a file of the release, and returns its identifier and checksum.
func (b *bill) addFile(path, license, purpose string) (id spdx.ElementID, sum string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	digest := sha256.Sum256(content)
	sum, name := hex.EncodeToString(digest[:]), filepath.Base(path)
	id = spdx.ElementID("Package-" + notInID.ReplaceAllString(name, "-"))
	b.add(&spdx.Package{
		PackageSPDXIdentifier: id, PackageName: name, PackageVersion: b.version, PackageFileName: name,
		PackageChecksums:        []spdx.Checksum{{Algorithm: spdx.SHA256, Value: sum}},
		PackageLicenseConcluded: license, PackageLicenseDeclared: license, PrimaryPackagePurpose: purpose,
	})
	b.relate("DOCUMENT", "DESCRIBES", id)
	return id, sum, nil
}

// addWheel adds a Python wheel, and returns its checksum.
func (b *bill) addWheel(path string) (string, error) {
	_, sum, err := b.addFile(path, "Apache-2.0", "LIBRARY")
	return sum, err
}

// addBinary adds an executable and its modules, and returns its checksum.
func (b *bill) addBinary(path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", err
	}
	id, sum, err := b.addFile(path, "Apache-2.0 AND ("+bpfLicense+")", "APPLICATION")
	if err != nil {
		return "", err
	}
	b.relate(id, "CONTAINS", bpfID)
	compiler, err := b.addModule(stdlib, strings.TrimPrefix(info.GoVersion, "go"), "")
	if err != nil {
		return "", err
	}
	b.relate(id, "STATIC_LINK", compiler)
	for _, d := range info.Deps {
		dep, err := b.addModule(d.Path, d.Version, d.Sum)
		if err != nil {
			return "", err
		}
		b.relate(id, "STATIC_LINK", dep)
	}
	return sum, nil
}

// addModule adds a module that an executable has; sum is its checksum in go.sum.
func (b *bill) addModule(path, version, sum string) (spdx.ElementID, error) {
	m := b.modules[path]
	if m == nil || m.version != version {
		return "", fmt.Errorf("module %s %s isn't what go list finds", path, version)
	}
	license, err := m.license()
	if err != nil {
		return "", err
	}
	p := &spdx.Package{
		PackageSPDXIdentifier: spdx.ElementID("Package-" + notInID.ReplaceAllString(path+"-"+version, "-")),
		PackageName:           path, PackageVersion: version,
		PackageLicenseConcluded: license, PackageLicenseDeclared: license,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/" + path + "@" + version,
		}},
	}
	if sum != "" {
		escapedPath, err := gomodule.EscapePath(path)
		if err != nil {
			return "", err
		}
		escapedVersion, err := gomodule.EscapeVersion(version)
		if err != nil {
			return "", err
		}
		p.PackageDownloadLocation = "https://proxy.golang.org/" + escapedPath + "/@v/" + escapedVersion + ".zip"
		p.PackageSourceInfo = "go.sum: " + sum
	}
	b.add(p)
	return p.PackageSPDXIdentifier, nil
}

// add adds a package, unless the document has it already.
func (b *bill) add(p *spdx.Package) {
	if b.known[p.PackageSPDXIdentifier] {
		return
	}
	b.known[p.PackageSPDXIdentifier] = true
	if p.PackageDownloadLocation == "" {
		p.PackageDownloadLocation = noAssertion
	}
	p.PackageCopyrightText = noAssertion
	b.Packages = append(b.Packages, p)
}

func (b *bill) relate(from spdx.ElementID, how string, to spdx.ElementID) {
	b.Relationships = append(b.Relationships, &spdx.Relationship{
		RefA: spdx.DocElementID{ElementRefID: from}, RefB: spdx.DocElementID{ElementRefID: to}, Relationship: how,
	})
}
