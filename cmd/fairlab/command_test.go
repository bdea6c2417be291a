// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func execute(e env, args ...string) error {
	root := newCommand(e)
	root.SetArgs(args)
	return root.Execute()
}

// What can't be done is an error of one line, before anything is made.
func TestLabRefuses(t *testing.T) {
	for command, want := range map[string]string{
		"up":                            "accepts 1 arg(s), received 0",
		"up nonsense":                   `unknown topology "nonsense": want ecmp, vlan, vxlan, pods, nodes, snat, cloud or balancer-pods`,
		"up ecmp --name A/b":            `bad name "A/b"`,
		"up ecmp --balancers 0":         "0 balancers: want 1 to 80",
		"up ecmp --servers 101":         "101 servers: want 1 to 100",
		"up ecmp --mtu 100":             "topology ecmp: mtu 100 is not in 1280 to 9000",
		"up ecmp --forward nonsense":    `unknown forwarding mode "nonsense"`,
		"up ecmp --router cisco":        `topology ecmp: unknown router "cisco": want frr, bird or gobgp`,
		"up ecmp --reflector":           "topology ecmp: no router that speaks BGP is chosen",
		"up ecmp --second 4":            "4 balancers of the second VIPs: want 0 to 3",
		"up pods --router frr":          "topology pods takes no --router",
		"up snat --router gobgp":        `topology snat: router "gobgp": want frr or bird`,
		"up snat --balancers 0":         "topology snat: 0 balancers: want 1 to 80",
		"up snat --servers 101":         "topology snat: 101 servers: want 1 to 100",
		"up snat --reflector":           "topology snat takes no --reflector",
		"up balancer-pods --second 4":   "4 nodes with pods of the second VIPs: want 0 to 3",
		"up balancer-pods --router frr": "topology balancer-pods takes no --router",
		"up vlan --servers 3":           "topology vlan takes no --servers",
		"down":                          "want the name of one lab, or --all",
		"down a --all":                  "want the name of one lab, or --all",
		"down no-such-lab":              "lab no-such-lab: no such lab",
		"down ../labs":                  `bad name "../labs"`,
		"list -o yaml":                  `unknown output "yaml": want table or json`,
		"exec no-such-lab client":       "requires at least 3 arg(s)",
		"exec no-such-lab a -- true -x": "lab no-such-lab: no such lab",
		"echo --listen nonsense":        "--listen: ",
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"lab"}, strings.Fields(command)...)
		err := execute(env{stdout: &stdout, stderr: &stderr}, args...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", command, err, want)
		}
		if stdout.Len() > 0 {
			t.Errorf("%s: prints %q", command, &stdout)
		}
	}
}

// What can't be measured is said before anything is built.
func TestBenchForwardRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		`no device is called "toaster": there are none, reflector, l2dsr`: {"--device", "reflector,toaster"},
		`frame size "9000"`: {"--frame", "64,9000"},
	} {
		var stdout, stderr bytes.Buffer
		err := execute(env{stdout: &stdout, stderr: &stderr}, append([]string{"bench", "forward"}, args...)...)
		if err == nil || stdout.Len() > 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, prints %q, want an error with %q", args, err, &stdout, want)
		}
	}
}
