// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kubeRouter is the command of kube-router, and kubeRouterModule a Go module of its own that
// requires it. Clusters use its firewall only: it enforces NetworkPolicies by
// iptables and ipsets.
const (
	kubeRouter       = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
	kubeRouterModule = "test/kuberouter"
)

// buildKubeRouter builds kube-router, unless it is in the cache, and returns its path.
func buildKubeRouter(ctx context.Context, log io.Writer) (string, error) {
	dir, err := InRepository(kubeRouterModule)
	if err != nil {
		return "", err
	}
	sum, err := sumOf(dir, "go.mod", "go.sum")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "fairlead", "kube-router", sum, "kube-router")
	return path, buildOnce(path, func(part string) error {
		fmt.Fprintln(log, "building kube-router for tests, once: some minutes")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", part, kubeRouter)
		build.Dir, build.Stdout, build.Stderr = dir, log, log
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		return build.Run()
	})
}

// startPolicies starts kube-router, which ends if the node isn't registered, where the cluster
// enforces NetworkPolicies.
func (n *Node) startPolicies() error {
	if !n.cluster.options.NetworkPolicies {
		return nil
	}
	if err := n.writeIdentity(policyKubeconfig, "system:kube-router", "system:masters"); err != nil {
		return err
	}
	_, err := n.run("kube-router", n.cluster.kubeRouter, "--run-firewall=true", "--run-router=false", "--run-service-proxy=false",
		"--kubeconfig="+inNode(policyKubeconfig), "--hostname-override="+n.name, "--service-cluster-ip-range="+strings.Split(serviceNetworks, ",")[0], "--health-port=0")
	return err
}
