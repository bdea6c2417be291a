// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"fairlead.io/fairlead/internal/controller"
)

// controllerOptions are the flags of "controller".
type controllerOptions struct {
	controller.Options
	kubeconfig string
	format     logFormat
}

func newControllerCommand(e env) *cobra.Command {
	o := controllerOptions{format: logText}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Decide in a Kubernetes cluster which Service has which address, and which nodes serve it",
		Long: `Decide in a Kubernetes cluster which Service and LoadBalancer has which address, out
of AddressPools, and which nodes serve it, in LoadBalancerGroups. The agents serve
what is decided, also while no controller runs.

Several controllers may run: a Lease elects the one that decides, and another takes
over when it ends. Everything that is decided stands in the objects' statuses.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; if not given, as a pod does")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the controller's Lease and of the agents' pods (environment: POD_NAMESPACE)")
	flags.BoolVar(&o.DefaultClass, "default-class", false, "serve Services without a loadBalancerClass too")
	flags.BoolVar(&o.LeaderElect, "leader-elect", true, "decide only while holding the Lease; without it no other controller may run")
	flags.DurationVar(&o.AgentGrace, "agent-grace", time.Minute, "how long an agent may be away before a spare node takes its node's place")
	flags.StringVar(&o.MetricsAddress, "metrics-address", ":9573", `where /metrics is answered; "" for nowhere`)
	flags.StringVar(&o.HealthAddress, "health-address", ":9574", `where /healthz and /readyz are answered; "" for nowhere`)
	flags.Var(&o.format, "log-format", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), o.format.logger(e.stderr))
	}
	return cmd
}

// run runs a controller until a signal ends it.
func (o controllerOptions) run(ctx context.Context, log *slog.Logger) error {
	if o.Namespace == "" {
		return errors.New("--namespace: none, and no POD_NAMESPACE in the environment")
	}
	config, err := o.cluster()
	if err != nil {
		return err
	}
	// The libraries have loggers of the process.
	bridge := logr.FromSlogHandler(log.Handler())
	klog.SetLogger(bridge)
	ctrllog.SetLogger(bridge)
	o.Log = log
	return controller.Run(ctx, config, o.Options)
}

// cluster returns how the API server is reached.
func (o controllerOptions) cluster() (*rest.Config, error) {
	if o.kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no --kubeconfig, and this is no pod: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}
