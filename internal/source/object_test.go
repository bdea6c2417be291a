// SPDX-License-Identifier: Apache-2.0

package source

import "testing"

func TestNamespaceOf(t *testing.T) {
	for object, want := range map[string]string{
		"Service default/web": "default", "LoadBalancer web/shop": "web", "BGPPeer tor1": "",
		"default/web/80": "default", "default/web/http/ipv6": "default", "flb:web/shop/https": "web", "web": "",
	} {
		if got := NamespaceOf(object); got != want {
			t.Errorf("%s: namespace %q, want %q", object, got, want)
		}
	}
}
