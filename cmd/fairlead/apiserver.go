// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"fairlead.io/fairlead/cmd/internal/cli"
	"fairlead.io/fairlead/internal/apiserver"
)

func newAPIServerCommand(e env) *cobra.Command {
	var o apiserver.Options
	var log logFlags
	kubeconfig := ""
	var data apiserver.Data
	cmd := &cobra.Command{
		Use:   "apiserver",
		Short: "Serve an HTTP API with which clouds create load balancers",
		Long: `Serve an HTTP API with which clouds create load balancers, listeners, pools, members
and health checks of projects. They are kept as objects of the kind LoadBalancer in a
Kubernetes cluster, those of a project in one namespace. Several servers may run.

Without a cluster they are kept in the file --data, by one server. The file --policy
says which addresses projects may have and which members are served. Agents follow
this server and report to it.

Clients have bearer tokens, of which the file --tokens has hashes, or certificates of
an authority in the file --client-ca: each organization (O) in the subject is a
project, "*" all of them; the organizational unit (OU) "read-only" restricts the client
to reading; the common name (CN) is logged. The unit "node" is that of agents, which
follow load balancers, report for the node of their common name, and can do nothing
else. These files are read again when they change; if one has an error, the earlier
contents stay in use.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:9575", "address of the API; others than loopback addresses need a certificate")
	flags.StringVar(&o.Files.Tokens, "tokens", "", "file with hashes of tokens: see fairlead apiserver token")
	flags.StringVar(&o.Files.Certificate, "tls-cert", "", "file with the server's certificate, and those of authorities in between")
	flags.StringVar(&o.Files.Key, "tls-key", "", "file with the key of the certificate")
	flags.StringVar(&o.Files.ClientCA, "client-ca", "", "file with certificates of the authorities of clients' certificates")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's service account)")
	flags.StringVar(&data.File, "data", "", "file with all load balancers, in place of a cluster")
	flags.BoolVar(&data.Create, "create", false, "create the file of --data if there is none; otherwise that is an error, as agents would remove all services")
	flags.BoolVar(&data.Replace, "replace", false, "have agents serve the load balancers of --data though they have served those of another file, or newer ones: for a restored copy")
	flags.StringVar(&data.Policy, "policy", "", "file with the addresses and members that are allowed, for --data")
	flags.StringVar(&o.NamespacePrefix, "namespace-prefix", "project-", "prefix of namespaces: the project web is in the namespace project-web")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the Leases of clients that follow statuses (environment: POD_NAMESPACE)")
	flags.IntVar(&o.Rate, "rate", 50, "requests per second of each client; twice as many for a short time")
	flags.StringVar(&o.MetricsAddress, "metrics-address", ":9576", `address of /metrics, /healthz and /readyz; "" disables them`)
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", false, "serve /metrics over TLS, to clients with a token of the cluster that may get /metrics")
	log.register(cmd)
	for _, flag := range []string{"tokens", "tls-cert", "tls-key", "client-ca", "kubeconfig", "data", "policy"} {
		cli.Complete(cmd, flag, completeFiles)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.Files.Tokens == "" && o.Files.ClientCA == "":
			return cli.Usagef("--tokens, --client-ca: neither is there, so no client could authenticate")
		case (o.Files.Certificate == "") != (o.Files.Key == ""):
			return cli.Usagef("--tls-cert, --tls-key: one without the other")
		case o.Files.ClientCA != "" && !o.Files.TLS():
			return cli.Usagef("--client-ca: only with --tls-cert")
		case data.File != "" && kubeconfig != "":
			return cli.Usagef("--data, --kubeconfig: want one of them")
		case (data.File == "") != (data.Policy == ""):
			return cli.Usagef("--data, --policy: one without the other")
		case data.File == "" && (data.Create || data.Replace):
			return cli.Usagef("--create, --replace: only with --data")
		case data.File != "" && (o.MetricsSecure || cmd.Flags().Changed("namespace-prefix") || cmd.Flags().Changed("namespace")):
			return cli.Usagef("--data: not with --metrics-secure, --namespace and --namespace-prefix, which need a cluster")
		case o.Rate < 1:
			return cli.Usagef("--rate %d: want at least 1", o.Rate)
		}
		o.Log = log.logger(e.stderr)
		if data.File != "" {
			return apiserver.RunWithFile(cmd.Context(), data, o)
		}
		return apiserver.RunWithKubeconfig(cmd.Context(), kubeconfig, o)
	}
	cmd.AddCommand(newTokenCommand(e))
	return cmd
}

func newTokenCommand(e env) *cobra.Command {
	var t apiserver.Token
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "token ID",
		Short: "Make a token for a client of the API",
		Long: `Make a random token for a client of the API. The token is printed to the standard
output and kept nowhere. The line for the file of "fairlead apiserver --tokens", which
has a hash in place of the token, is printed to the standard error output:

  fairlead apiserver token octavia --project web >octavia.token 2>>tokens.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			t.ID = args[0]
			if lifetime < 0 {
				return cli.Usagef("--lifetime %s: want a positive duration", lifetime)
			}
			if lifetime > 0 {
				t.Expires = time.Now().Add(lifetime).Truncate(time.Second)
			}
			token, entry, err := apiserver.NewToken(t)
			if err != nil {
				return cli.Usage(err)
			}
			fmt.Fprintln(e.stdout, token)
			fmt.Fprint(e.stderr, entry.Line())
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&t.Projects, "project", nil, `project that the token is for, or "*" for all; may be repeated`)
	flags.BoolVar(&t.ReadOnly, "read-only", false, "the token allows GET requests only")
	flags.StringSliceVar(&t.Nodes, "node", nil, "node whose agent follows the server with the token, in place of projects; may be repeated")
	flags.DurationVar(&lifetime, "lifetime", 0, "time until the token expires, such as 2160h (default: it doesn't)")
	cmd.MarkFlagsOneRequired("project", "node")
	return cmd
}
