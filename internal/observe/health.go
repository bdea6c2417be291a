// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"time"

	"fairlead.io/fairlead/internal/store"
)

// hanging is how long one call of the data plane, or one reading of its counters,
// may take before the agent counts as stuck. Even thousands of services take a few
// seconds, one by one.
const hanging = 30 * time.Second

// Alive returns what hangs in the agent, so that somebody should start it again;
// nil if it works. A configuration that can't be programmed hangs nothing.
func (a *Agent) Alive() error {
	since := a.Calling()
	if since.IsZero() {
		return nil
	}
	if took := time.Since(since); took > hanging {
		return fmt.Errorf("reconcile: the data plane has been at one call for %s", took.Round(time.Second))
	}
	return nil
}

// Alive is the agent's, and says whether its counters are looked at. That they
// can't be read is no sign of death.
func (o *Observer) Alive() error {
	o.mu.Lock()
	last := o.agent.Started
	if o.moment != nil {
		last = o.moment.Time
	}
	o.mu.Unlock()
	err := o.agent.Alive()
	if age := time.Since(last); age > hanging {
		err = errors.Join(err, fmt.Errorf("observe: the counters were looked at %s ago", age.Round(time.Second)))
	}
	return err
}

// Ready returns why the node should get no packets of VIPs, all reasons at once;
// nil if it should.
func (a *Agent) Ready() error {
	var reasons []error
	if !a.Begun() {
		reasons = append(reasons, errors.New("the first configuration has not been tried yet"))
	} else if len(a.Attachments()) == 0 {
		reasons = append(reasons, errors.New("the data plane is attached to no interface"))
	}
	if drain, draining := a.Desired().Draining(store.Target{}); draining {
		reasons = append(reasons, fmt.Errorf("the node is drained since %s", drain.Since.UTC().Format(time.RFC3339)))
	}
	return errors.Join(reasons...)
}
