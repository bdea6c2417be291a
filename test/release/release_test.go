// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"fairlead.io/fairlead/test/release"
)

const (
	root = "../.."
	// repository is the name of releases' images.
	repository = "registry.example/fairlead"
	// location is where files of releases will be.
	location = "https://downloads.example/fairlead/~1"
)

// files of a release, VERSION in place of its version.
var files = []string{
	"LICENSES.txt", "SHA256SUMS", "SHA256SUMS.sig", "fairlead-VERSION.tgz", "fairlead-apiserver.service", "fairlead-chart.tar", "fairlead-image.tar",
	"fairlead-linux-amd64", "fairlead-linux-arm64", "fairlead-man.tar.gz", "fairlead.service", "fairlead.spdx.json", "fairlead.yaml",
	"fairlead_octavia_provider-VERSION-py3-none-any.whl", "fairlead_octavia_provider-VERSION.tar.gz",
	"kubectl-fairlead-linux-amd64.tar.gz", "kubectl-fairlead-linux-arm64.tar.gz", "kubectl-fairlead.yaml",
}

// made is a folder with a release.
type made struct{ dir, version string }

// run runs a command and returns its output.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// commit makes a repository whose only commit has the files of this tree, and the tag of
// its release, whose version it returns.
func commit(t *testing.T) (dir, version string) {
	t.Helper()
	dir = t.TempDir()
	run(t, exec.CommandContext(t.Context(), "bash", "-euc", `cd "$1"; dir=$2
		git ls-files -z --cached --others --exclude-standard |
			while IFS= read -rd "" f; do [[ ! -e $f ]] || printf '%s\0' "$f"; done | xargs -0 cp --parents -t "$dir"
		cd "$dir"
		git init --quiet
		git add --all
		git -c user.name=test -c user.email=test@localhost -c commit.gpgSign=false commit --quiet --message=release \
			--date=2026-01-02T03:04:05Z
		git -c tag.gpgSign=false tag "v$(sed -n 's/^version: //p' deploy/helm/fairlead/Chart.yaml)"`, "commit", root, dir))
	tag := run(t, exec.CommandContext(t.Context(), "git", "-C", dir, "describe", "--tags"))
	return dir, strings.TrimPrefix(strings.TrimSpace(tag), "v")
}

// build makes the release of a repository.
func build(t *testing.T, dir, key string, env ...string) made {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "-C", dir, "release", "SIGNING_KEY="+key, "IMAGE_REPOSITORY="+repository, "RELEASE_URL="+location+"/")
	cmd.Env = append(os.Environ(), env...)
	t.Log(run(t, cmd))
	return made{dir: filepath.Join(dir, "dist")}
}

// read returns a file of the release.
func (r made) read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// open reads an OCI archive of the release.
func (r made) open(t *testing.T, name string) release.Archive {
	t.Helper()
	archive, err := release.Open(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// TestRelease makes the release of a commit twice: in its repository and in a clone, with
// another language, time zone and defaults of flags. All bytes are the same.
func TestRelease(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("buildah needs root, or a user's own namespaces")
	}
	key := filepath.Join(t.TempDir(), "key")
	run(t, exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key))
	dir, version := commit(t)
	clone := filepath.Join(t.TempDir(), "another", "place")
	run(t, exec.CommandContext(t.Context(), "git", "clone", "--quiet", dir, clone))
	first := build(t, dir, key)
	first.version = version
	second := build(t, clone, key, "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "GOFLAGS=-buildvcs=true", "FAIRLEAD_SOCKET=/elsewhere", "POD_NAMESPACE=elsewhere")

	var names []string
	for _, name := range files {
		name = strings.Replace(name, "VERSION", version, 1)
		names = append(names, name)
		if !bytes.Equal(first.read(t, name), second.read(t, name)) {
			t.Errorf("%s differs between two releases of one commit", name)
		}
	}
	entries, err := os.ReadDir(first.dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if !slices.Equal(found, names) {
		t.Errorf("the release has %q, want %q", found, names)
	}
	t.Run("checksums", func(t *testing.T) { testChecksums(t, first, key) })
	t.Run("binaries", func(t *testing.T) { testBinaries(t, first) })
	t.Run("image", func(t *testing.T) { testImage(t, first) })
	t.Run("chart", func(t *testing.T) { testChart(t, first) })
	t.Run("manual pages", func(t *testing.T) { testManual(t, first) })
	t.Run("plugin", func(t *testing.T) { testPlugin(t, first) })
	t.Run("wheel", func(t *testing.T) { testWheel(t, first) })
	t.Run("SBOM and licences", func(t *testing.T) { testSBOM(t, first) })
}

// The manual has pages of the program and of commands.
func testManual(t *testing.T, r made) {
	pages := run(t, exec.CommandContext(t.Context(), "tar", "--list", "--file", filepath.Join(r.dir, "fairlead-man.tar.gz")))
	for _, page := range []string{"man/fairlead.1", "man/fairlead-agent.1"} {
		if !slices.Contains(strings.Fields(pages), page) {
			t.Errorf("the manual has no %s:\n%s", page, pages)
		}
	}
}

// The checksums are right and signed, and the signature is of nothing else.
func testChecksums(t *testing.T, r made, key string) {
	sums := exec.CommandContext(t.Context(), "sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS")
	sums.Dir = r.dir
	run(t, sums)
	if n := strings.Count(string(r.read(t, "SHA256SUMS")), "\n"); n != len(files)-2 {
		t.Errorf("%d checksums of %d files", n, len(files)-2)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	signers := filepath.Join(t.TempDir(), "allowed_signers")
	if err := os.WriteFile(signers, append([]byte("release "), public...), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func(text []byte) error {
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release", "-n", "file",
			"-s", filepath.Join(r.dir, "SHA256SUMS.sig"))
		cmd.Stdin = bytes.NewReader(text)
		return cmd.Run()
	}
	text := r.read(t, "SHA256SUMS")
	if err := verify(text); err != nil {
		t.Errorf("signature: %v", err)
	}
	if err := verify(bytes.Replace(text, []byte("a"), []byte("b"), 1)); err == nil {
		t.Error("the signature is right for another text, too")
	}
}

// emulator returns a command that runs an executable of an architecture.
func emulator(t *testing.T, arch, path string, args ...string) *exec.Cmd {
	t.Helper()
	native := strings.TrimSpace(run(t, exec.CommandContext(t.Context(), "go", "env", "GOHOSTARCH")))
	if arch == native {
		return exec.CommandContext(t.Context(), path, args...)
	}
	names := map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}
	return exec.CommandContext(t.Context(), names[arch], append([]string{path}, args...)...)
}

// Executables are static, and say which release they are of.
func testBinaries(t *testing.T, r made) {
	for _, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(r.dir, "fairlead-linux-"+arch)
		file, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, p := range file.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s is dynamically linked", path)
			}
		}
		says := run(t, emulator(t, arch, path, "version"))
		if !strings.Contains(says, r.version+" (commit ") || !strings.Contains(says, "linux/"+arch) || strings.Contains(says, "dirty") {
			t.Errorf("%s says %s", path, says)
		}
	}
}

// The image of each architecture has that executable, which starts, under emulation too,
// and checks a configuration.
func testImage(t *testing.T, r made) {
	archive := r.open(t, "fairlead-image.tar")
	name, _, index, err := archive.Top()
	if err != nil || name != repository+":"+r.version {
		t.Fatalf("image %s: %v", name, err)
	}
	var found []string
	for _, m := range index.Manifests {
		arch := m.Platform.Architecture
		found = append(found, m.Platform.OS+"/"+arch)
		image, err := archive.Files(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(image["usr/share/doc/fairlead/LICENSES.txt"].Content, r.read(t, "LICENSES.txt")) {
			t.Errorf("%s: the image has other licences", arch)
		}
		if !bytes.Equal(image["usr/bin/fairlead"].Content, r.read(t, "fairlead-linux-"+arch)) {
			t.Errorf("%s: the image has another executable", arch)
		}
		dir := t.TempDir()
		path, config := filepath.Join(dir, "fairlead"), filepath.Join(dir, "fairlead.yaml")
		if err := os.WriteFile(path, image["usr/bin/fairlead"].Content, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(config, []byte("node: {name: lb1, interfaces: [eth0]}\nservices: []\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, emulator(t, arch, path, "config", "check", config))
	}
	if !slices.Equal(found, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("images for %q", found)
	}
}

// Helm pulls the chart of the OCI archive from a registry that has nothing else. It is
// the packaged chart, and it and the manifest name the image of this release by its digest.
func testChart(t *testing.T, r made) {
	archive := r.open(t, "fairlead-chart.tar")
	tag, digest, _, err := archive.Top()
	if err != nil || tag != r.version {
		t.Fatalf("chart %s: %v", tag, err)
	}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		name := q.URL.Path[strings.LastIndexByte(q.URL.Path, '/')+1:]
		if name == tag {
			name = digest
		}
		file, there := archive["blobs/"+strings.Replace(name, ":", "/", 1)]
		switch {
		case !there:
			http.NotFound(w, q)
			return
		case strings.Contains(q.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		}
		w.Header().Set("Docker-Content-Digest", name)
		w.Header().Set("Content-Length", fmt.Sprint(len(file.Content)))
		_, _ = w.Write(file.Content) // Helm reports missing bytes
	}))
	defer registry.Close()
	helm := func(args ...string) string {
		path := run(t, exec.CommandContext(t.Context(), "go", "tool", "-n", "-modfile="+root+"/tools/helm/go.mod", "helm"))
		return run(t, exec.CommandContext(t.Context(), strings.TrimSpace(path), args...))
	}
	pulled := t.TempDir()
	address := "oci" + strings.TrimPrefix(registry.URL, "http") + "/fairlead"
	helm("pull", address, "--version", r.version, "--plain-http", "--destination", pulled)
	name := "fairlead-" + r.version + ".tgz"
	chart, err := os.ReadFile(filepath.Join(pulled, name))
	if err != nil || !bytes.Equal(chart, r.read(t, name)) {
		t.Errorf("Helm pulled another chart: %v", err)
	}
	_, imageDigest, _, err := r.open(t, "fairlead-image.tar").Top()
	if err != nil {
		t.Fatal(err)
	}
	image := "image: " + repository + "@" + imageDigest + "\n"
	rendered := helm("template", "fairlead", filepath.Join(pulled, name), "--kube-version", "1.36.0")
	for what, text := range map[string]string{"chart": rendered, "manifest": string(r.read(t, "fairlead.yaml"))} {
		if n := strings.Count(text, image); n != 2 {
			t.Errorf("the %s has %q %d times, want once for agents and controllers each", what, image, n)
		}
	}
}

// The manifest for krew names an archive for each architecture by its location and checksum. The archive has
// the executable as the plugin of kubectl, and licences.
func testPlugin(t *testing.T, r made) {
	var manifest struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			Version          string
			ShortDescription string `yaml:"shortDescription"`
			Description      string
			Caveats          string
			Platforms        []struct {
				Selector struct {
					MatchLabels map[string]string `yaml:"matchLabels"`
				}
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(r.read(t, "kubectl-fairlead.yaml"), &manifest, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" ||
		manifest.Metadata.Name != "fairlead" || manifest.Spec.Version != "v"+r.version || manifest.Spec.ShortDescription == "" {
		t.Errorf("the manifest is %+v", manifest)
	}
	var found []string
	for _, p := range manifest.Spec.Platforms {
		arch := p.Selector.MatchLabels["arch"]
		found = append(found, p.Selector.MatchLabels["os"]+"/"+arch)
		archive := "kubectl-fairlead-linux-" + arch + ".tar.gz"
		if sum := fmt.Sprintf("%x", sha256.Sum256(r.read(t, archive))); p.SHA256 != sum || p.URI != location+"/"+archive || p.Bin != "kubectl-fairlead" {
			t.Errorf("the manifest has %+v, want %s with %s", p, archive, sum)
		}
		unpacked := made{dir: t.TempDir()}
		run(t, exec.CommandContext(t.Context(), "tar", "--extract", "--file", filepath.Join(r.dir, archive), "--directory", unpacked.dir))
		if !bytes.Equal(unpacked.read(t, "LICENSES.txt"), r.read(t, "LICENSES.txt")) {
			t.Errorf("%s has other licences", archive)
		}
		if !bytes.Equal(unpacked.read(t, p.Bin), r.read(t, "fairlead-linux-"+arch)) {
			t.Errorf("%s has another executable", archive)
		}
		path := filepath.Join(unpacked.dir, p.Bin)
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 {
			t.Errorf("%s: mode %v, error %v", path, info.Mode(), err)
		}
		if says := run(t, emulator(t, arch, path, "--version")); !strings.HasPrefix(says, "kubectl-fairlead "+r.version+" ") {
			t.Errorf("%s says %s", path, says)
		}
	}
	if !slices.Equal(found, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("plugins for %q", found)
	}
}

// The provider of Octavia is installed from the wheel with the oldest release of Octavia that it is for, and with the
// one of its unit tests. Each loads the driver, and has the agent, the options and the command. All other packages
// have the versions of the unit tests.
func testWheel(t *testing.T, r made) {
	text, err := os.ReadFile(root + "/tools/openstack.txt")
	if err != nil {
		t.Fatal(err)
	}
	var others, newest strings.Builder
	for _, pin := range regexp.MustCompile(`(?m)^([A-Za-z0-9].*==.*) \\$`).FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(pin[1], "octavia") {
			fmt.Fprintln(&newest, pin[1])
		} else {
			fmt.Fprintln(&others, pin[1])
		}
	}
	for name, pins := range map[string]string{"2024.1": "octavia==14.0.2\noctavia-lib==3.5.0\n", "newest": newest.String()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "pins"), []byte(others.String()+pins), 0o600); err != nil {
				t.Fatal(err)
			}
			install := exec.CommandContext(t.Context(), "bash", "-euc", `python3 -m venv "$1"
				pip() { "$1/bin/pip" --quiet --disable-pip-version-check "${@:2}"; }
				pip "$1" install -c "$1/pins" octavia "$2"
				pip "$1" check
				cd /
				"$1/bin/fairlead-octavia-sync" --help
				"$1/bin/oslo-config-generator" --namespace fairlead_octavia_provider
				"$1/bin/python" -c "$3"`, "install", dir, filepath.Join(r.dir, "fairlead_octavia_provider-"+r.version+"-py3-none-any.whl"), loadDriver)
			says := run(t, install)
			for _, want := range []string{"usage: fairlead-octavia-sync", "[fairlead]\n", "#api_urls = ", "Driver of fairlead_octavia_provider.driver", "run of fairlead_octavia_provider.agent"} {
				if !strings.Contains(says, want) {
					t.Errorf("no %q in\n%s", want, says)
				}
			}
		})
	}
}

// loadDriver has Octavia load the driver, and stevedore the agent as octavia-driver-agent does.
const loadDriver = `
from octavia.common import config
from octavia.api.drivers import driver_factory
from oslo_config import cfg
from stevedore import driver
cfg.CONF.set_override("enabled_provider_drivers", {"fairlead": "Fairlead"}, group="api_settings")
agent = driver.DriverManager("octavia.driver_agent.provider_agents", "fairlead", invoke_on_load=False).driver
for loaded in type(driver_factory.get_driver("fairlead")), agent:
    print(loaded.__name__, "of", loaded.__module__)
`

// The SBOM has each module that the linker recorded, with a licence, and the text of that
// is in LICENSES.txt.
func testSBOM(t *testing.T, r made) {
	var bom struct {
		SPDXVersion string
		Packages    []struct {
			SPDXID, Name, VersionInfo, LicenseConcluded string
			Checksums                                   []struct{ Algorithm, ChecksumValue string }
		}
		Relationships []struct{ SPDXElementID, RelatedSPDXElement, RelationshipType string }
	}
	if err := json.Unmarshal(r.read(t, "fairlead.spdx.json"), &bom); err != nil || bom.SPDXVersion != "SPDX-2.3" {
		t.Fatalf("version %s: %v", bom.SPDXVersion, err)
	}
	ids, licenses := map[string]string{}, string(r.read(t, "LICENSES.txt"))
	linked := map[[2]string]bool{}
	for _, p := range bom.Packages {
		ids[p.Name+" "+p.VersionInfo] = p.SPDXID
		if p.LicenseConcluded == "" || p.LicenseConcluded == "NOASSERTION" {
			t.Errorf("%s has no licence", p.Name)
		}
		if len(p.Checksums) > 0 {
			if got := fmt.Sprintf("%x", sha256.Sum256(r.read(t, p.Name))); got != p.Checksums[0].ChecksumValue {
				t.Errorf("%s has checksum %s", p.Name, got)
			}
		}
	}
	for _, l := range bom.Relationships {
		if l.RelationshipType == "STATIC_LINK" {
			linked[[2]string{l.SPDXElementID, l.RelatedSPDXElement}] = true
		}
	}
	for _, binary := range []string{"fairlead-linux-amd64", "fairlead-linux-arm64"} {
		info, err := buildinfo.ReadFile(filepath.Join(r.dir, binary))
		if err != nil {
			t.Fatal(err)
		}
		modules := []string{"stdlib " + strings.TrimPrefix(info.GoVersion, "go")}
		for _, d := range info.Deps {
			modules = append(modules, d.Path+" "+d.Version)
		}
		if len(modules) < 20 {
			t.Errorf("%s: %d modules", binary, len(modules))
		}
		for _, m := range modules {
			if !linked[[2]string{ids[binary+" "+r.version], ids[m]}] {
				t.Errorf("the SBOM doesn't say that %s has %s", binary, m)
			}
			if !strings.Contains(licenses, "\n"+m+"\n") {
				t.Errorf("LICENSES.txt has nothing for %s", m)
			}
		}
	}
}

// A tree with changes gives no signed release, and a tag that isn't the chart's version gives
// none. Another folder isn't overwritten. A location that isn't a URL is refused.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ prepare, says, location string }{
		"location":      {location: "dist", says: "release: RELEASE_URL dist: want a URL without a query\n"},
		"changes":       {prepare: "echo >>README.md", says: "release: the tree has changes, which no release is signed with: commit them\n"},
		"not a release": {prepare: "mkdir dist && touch dist/mine", says: "release: $D/dist isn't a release: remove it, or name another folder\n"},
		"other tag": {
			prepare: "git tag --delete v$V && git tag v99.0.0",
			says:    "release: the tag is v99.0.0, but deploy/helm/fairlead/Chart.yaml has version $V\n",
		},
		"no repository": {
			prepare: "rm -r .git",
			says:    "fatal: not a git repository (or any of the parent directories): .git\nrelease: there is no git repository here\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, version := commit(t)
			prepare := exec.CommandContext(t.Context(), "bash", "-euc", strings.ReplaceAll(c.prepare, "$V", version))
			prepare.Dir = dir
			run(t, prepare)
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/release.sh"))
			cmd.Env = append(os.Environ(), "SIGNING_KEY=key", "RELEASE_URL="+c.location, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
			out, err := cmd.CombinedOutput()
			want := strings.NewReplacer("$V", version, "$D", dir).Replace(c.says)
			if err == nil || string(out) != want {
				t.Errorf("%v: %s\nwant %s", err, out, want)
			}
			if _, err := os.Stat(filepath.Join(dir, "dist", "SHA256SUMS")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("there is a release: %v", err)
			}
		})
	}
}
