// SPDX-License-Identifier: Apache-2.0

// Package openstack_test runs OpenStack's control plane, Keystone, Neutron, and Octavia with
// Fairlead's provider, and balancers that forward to members in Neutron's networks.
package octavia

import (
	"testing"

	"fairlead.io/fairlead/test/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
