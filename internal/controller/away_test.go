// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/http"
	"testing"

	"fairlead.io/fairlead/internal/controller"
)

// A controller that starts while the API server is away waits for it, isn't ready before,
// and can be ended.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	w.pool("main", "192.0.2.0/30")
	svc := w.service("web")
	health := loopbackAddress(9574)
	w.api.Stop(t)
	r := w.run(func(o *controller.Options) { o.HealthAddress = health })
	w.answers("http://"+health+"/healthz", http.StatusOK)
	w.answers("http://"+health+"/readyz", http.StatusInternalServerError)
	w.run().stop()
	select {
	case err := <-r.ended:
		t.Fatalf("the controller has ended: %v", err)
	default:
	}
	w.api.Start(t)
	w.answers("http://"+health+"/readyz", http.StatusOK)
	w.has(svc, "192.0.2.0")
}

// answers waits until a URL is answered with a status.
func (w *testCluster) answers(url string, want int) {
	w.Helper()
	w.await(fmt.Sprintf("%s to be answered with %d", url, want), func() error {
		request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
		if response.StatusCode != want {
			return fmt.Errorf("it is %s", response.Status)
		}
		return nil
	})
}
