// SPDX-License-Identifier: Apache-2.0

package main

import "fairlead.io/fairlead/internal/observe"

// routes tells observe what is announced.
func (a *agent) routes() observe.Routes {
	config := a.source.Config().BGP
	if config == nil {
		return observe.Routes{}
	}
	return observe.Routes{Enabled: true, ASN: config.ASN, RouterID: config.RouterID}
}
