// SPDX-License-Identifier: Apache-2.0

package observe

import "context"

// Reading is one look at an agent, for those who show it in other forms. Its
// rates are 0.
type Reading struct {
	Status   Status
	Services []Service
	Backends []Backend
	Routes   Routes
}

// Read looks at the agent now. It is an error if the counters can't be read.
func (a *Agent) Read(ctx context.Context) (Reading, error) {
	v, err := a.look(ctx, span{})
	if err != nil {
		return Reading{}, err
	}
	return Reading{Status: a.status(v), Services: v.services(), Backends: v.backends(), Routes: a.routes()}, nil
}
