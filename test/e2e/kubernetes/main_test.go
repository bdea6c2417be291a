// SPDX-License-Identifier: Apache-2.0

// Package kubernetes_test installs Fairlead by its chart, from its own image, in real
// Kubernetes, and looks at it from outside: a client behind a router of FRR asks for
// Services of type LoadBalancer while everything around them changes.
//
// One cluster of three nodes goes through all scenarios in turn, and a smaller one
// does without kube-proxy. What a test counts are requests and connections, never
// time.
package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// What a run builds once: the image of this tree's executable.
const (
	imageName    = "localhost/fairlead:e2e"
	imageArchive = "fairlead-image.tar"
	root         = "../../.."
)

// artefacts is the folder that has the image, the executable and that of whoami.
var artefacts string

// TestMain builds executables and the image, as "make image" does.
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
	compile := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -X fairlead.io/fairlead/internal/version.Version=e2e",
		"-o", artefacts, "./cmd/fairlead", "./test/e2e/kubernetes/whoami")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{compile, exec.Command("scripts/image.sh", artefacts+"/fairlead", artefacts+"/fairlead-image.tar", imageName, "e2e", "")} {
		cmd.Dir, cmd.Stderr = root, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", cmd, err)
		}
	}
	return nil
}
