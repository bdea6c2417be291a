// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"
	"strings"
	"testing"

	"fairlead.io/fairlead/internal/observe"
)

// Every exit of the program has words in a trace.
func TestExitsHaveWords(t *testing.T) {
	p, _ := newTestPlane(t)
	counts, err := p.kernel.exits.Read()
	if err != nil {
		t.Fatal(err)
	}
	for exit := range counts {
		if !observe.HasWords(exit) {
			t.Errorf("observe has no words for the exit %s", exit)
		}
	}
}

// A new table has to be given a place: seen by traces as it is, or their own.
func TestTracerKnowsEveryTable(t *testing.T) {
	spec, err := loadBalancer()
	if err != nil {
		t.Fatal(err)
	}
	own := tracerOwn(0)
	for name := range spec.Maps {
		_, private := own[name]
		if shared := slices.Contains(sharedWithTracer(), name); shared == private && !strings.HasPrefix(name, ".") {
			t.Errorf("table %s: shared with traces %t, their own %t", name, shared, private)
		}
	}
}
