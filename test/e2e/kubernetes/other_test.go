// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"flag"
	"net/netip"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var together = flag.Duration("together", 10*time.Second, "for how long at least TestCluster has Services of another controller")

// othersAddress is what the other controller assigns. It is in none of Fairlead's pools.
var othersAddress = netip.MustParseAddr("192.0.2.1")

// Another controller has assigned an address to a Service without class, which kube-proxy serves
// on the node to which the router leads. Fairlead, installed with the default class, serves its own
// Service meanwhile, and never writes to the other one.
func testOtherController(t *testing.T, i *installation) {
	pods, vips := i.deployed(t, "web"), i.vips(t, "web")
	i.Apply(t, `
apiVersion: v1
kind: Service
metadata: {name: others}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80}]
`)
	services := i.Clients().CoreV1().Services("default")
	svc, err := services.Get(t.Context(), "others", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	svc.Status.LoadBalancer.Ingress = []core.LoadBalancerIngress{{IP: othersAddress.String()}}
	written, err := services.UpdateStatus(t.Context(), svc, meta.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := i.Clients().CoreV1().Nodes().Get(t.Context(), i.names()[0], meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	route := []string{"ip", "route", "replace", othersAddress.String(), "via", node.Status.Addresses[0].Address}
	if _, err := i.Router.Run(t.Context(), route...); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	for began := time.Now(); time.Since(began) < *together; rounds++ {
		for _, address := range append([]netip.Addr{othersAddress}, vips...) {
			i.answered(t, address, pods)
		}
	}
	t.Logf("both answered in %d rounds", rounds)
	now, err := services.Get(t.Context(), "others", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != written.ResourceVersion {
		t.Errorf("the Service was written to: %+v", now)
	}
	for _, writer := range now.ManagedFields {
		if strings.Contains(writer.Manager, "fairlead") {
			t.Errorf("%s wrote to the Service: %s", writer.Manager, writer.FieldsV1)
		}
	}
	i.Kubectl(t, "delete", "service", "others")
	route[2] = "delete"
	if _, err := i.Router.Run(t.Context(), route...); err != nil {
		t.Fatal(err)
	}
}
