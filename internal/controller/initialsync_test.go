// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.io/fairlead/api/v1alpha1"
)

// pages is an API server that lists LoadBalancers in pages of one, as JSON.
type pages struct {
	client.Reader
	items []string
}

func (p pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, wanted := list.(*v1alpha1.LoadBalancerList); !wanted {
		return nil
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	page, next := 0, ""
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &page); err != nil {
			return err
		}
	}
	if page+1 < len(p.items) {
		next = fmt.Sprint(page + 1)
	}
	text := fmt.Sprintf(`{"metadata":{"continue":%q},"items":[%s]}`, next, p.items[page])
	return json.Unmarshal([]byte(text), list)
}

// An object of a page has nothing of the one at its place on the page before.
func TestInitialSyncKeepsPagesApart(t *testing.T) {
	d := newDeps(Options{})
	d.live = pages{items: []string{
		`{"metadata":{"name":"a","namespace":"x","labels":{"tier":"gold"}},"spec":{"addressPool":"gold"},"status":{"address":"203.0.113.1"}}`,
		`{"metadata":{"name":"b","namespace":"x"},"spec":{},"status":{"address":"203.0.113.2"}}`,
	}}
	held, err := initialSync{d}.adoptAll(t.Context())
	if err != nil || len(held) != 2 {
		t.Fatalf("%d objects, %v, want 2", len(held), err)
	}
	if a, b := held[0], held[1]; a.Pool != "gold" || b.Owner.Name != "b" || b.Pool != "" || len(b.Labels) > 0 {
		t.Errorf("%+v and %+v", a.addressRequest, b.addressRequest)
	}
}
