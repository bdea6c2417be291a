// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"testing"

	"fairlead.io/fairlead/test/cluster"
)

// Without kube-proxy Services are served all the same, from outside and from pods.
func TestWithoutKubeProxy(t *testing.T) {
	t.Parallel()
	i := install(t, cluster.Options{Nodes: 2}, nat)
	i.Apply(t, web)
	testInstall(t, i)
	i.Apply(t, whoami)
	i.deployed(t, "whoami")
	testUDPAfterAPod(t, i)
	pods := i.deployed(t, "web")
	for _, vip := range i.vips(t, "web") {
		i.answeredInside(t, vip, pods)
	}
}
