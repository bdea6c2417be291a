// SPDX-License-Identifier: Apache-2.0

// Package kubernetes_test installs Fairlead from a release, by its chart, in real
// Kubernetes, and looks at it from outside: a client behind a router of FRR asks for
// Services of type LoadBalancer while everything around them changes.
//
// One cluster of three nodes goes through all scenarios in turn, and a smaller one
// does without kube-proxy. Tests count requests and connections, never time.
package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"fairlead.io/fairlead/test/release"
)

const root = "../../.."

// Files that a run builds once.
var (
	// artefacts is a folder with the executable of whoami, and a release of this tree.
	artefacts string
	// imageArchive, chart and executable are files of the release: the image, the chart's
	// package as the OCI archive of the chart has it, and this machine's executable.
	imageArchive, chart, executable string
	// imageName is the image's, which the chart names too.
	imageName string
)

// TestMain builds the executable of whoami, and a release, as "make release" does.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // every test says why it is skipped
	}
	status := 1
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	if err := os.RemoveAll(artefacts); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

func build() (err error) {
	if artefacts, err = os.MkdirTemp("", fmt.Sprintf("fairlead-e2e-%d-", os.Getpid())); err != nil {
		return err
	}
	whoami := exec.Command("go", "build", "-trimpath", "-o", artefacts, "./test/e2e/kubernetes/whoami")
	whoami.Env = append(os.Environ(), "CGO_ENABLED=0")
	dist := filepath.Join(artefacts, "dist")
	made := exec.Command("scripts/release.sh", dist)
	made.Env = append(os.Environ(), "ARCHITECTURES="+runtime.GOARCH, "IMAGE_REPOSITORY=", "RELEASE_URL=", "SIGNING_KEY=") // whatever the environment says
	for _, cmd := range []*exec.Cmd{whoami, made} {
		cmd.Dir, cmd.Stderr = root, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", cmd, err)
		}
	}
	executable = filepath.Join(dist, "fairlead-linux-"+runtime.GOARCH)
	imageArchive = filepath.Join(dist, "fairlead-image.tar")
	image, err := release.Open(imageArchive)
	if err != nil {
		return err
	}
	if imageName, _, _, err = image.Top(); err != nil {
		return fmt.Errorf("%s: %w", imageArchive, err)
	}
	archive, err := release.Open(filepath.Join(dist, "fairlead-chart.tar"))
	if err != nil {
		return err
	}
	_, _, manifest, err := archive.Top()
	if err != nil {
		return fmt.Errorf("fairlead-chart.tar: %w", err)
	}
	content, err := archive.Blob(manifest.Layers[0].Digest)
	if err != nil {
		return err
	}
	chart = filepath.Join(artefacts, "chart.tgz")
	return os.WriteFile(chart, content, 0o600)
}
