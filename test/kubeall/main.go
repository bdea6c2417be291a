// SPDX-License-Identifier: Apache-2.0

// Command kubeall is Kubernetes in one binary, for tests: the components of the
// control plane and of nodes, and kubectl. It is picked by the name that the
// binary is called by (a symbolic link) or by the first argument:
//
//	kubeall kube-apiserver --help
//
// One binary shares the components' common code: 140 MB instead of 500,
// and one link instead of six. It is a module of its own, so that the go.mod of
// Fairlead has none of Kubernetes' requirements. The version is k8s.io/kubernetes'
// in go.mod; cluster.BuildKubernetes of test/cluster builds it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// component returns the command of that name, or nil. They are not all made
// beforehand: each reads the environment and sets global flags.
func component(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kube-proxy":
		return proxy.NewProxyCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	}
	return nil
}

func main() {
	name := filepath.Base(os.Args[0])
	command := component(name)
	if command == nil && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
		command = component(name)
	}
	if command == nil {
		fmt.Fprintln(os.Stderr, "kubeall: name kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet or kubectl")
		os.Exit(2)
	}
	if name == "kubectl" {
		// The command prints its error itself (kubectl's own main calls RunNoErrOutput).
		if err := cli.RunNoErrOutput(command); err != nil {
			kubectlutil.CheckErr(err)
		}
		return
	}
	os.Exit(cli.Run(command))
}
