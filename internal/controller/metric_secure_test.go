// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.io/fairlead/internal/controller"
	"fairlead.io/fairlead/test/cluster"
)

// TestAPIServerSecureMetrics gets metrics without a token, with an invalid one, with one of an
// account that may not get them, and with one of an account that may.
func TestAPIServerSecureMetrics(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	account := func(name string) []rbacv1.Subject {
		w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: home}})
		return []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: home}}
	}
	grant := func(name string, rules []rbacv1.PolicyRule, to []rbacv1.Subject) {
		w.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
		w.create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: to,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		})
	}
	grant("reviews", metricsRules(), []rbacv1.Subject{{Kind: "ServiceAccount", Name: "fairlead-controller", Namespace: home}})
	account("stranger")
	grant("reader", []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, account("reader"))

	address := loopbackAddress(9573)
	w.run(func(o *controller.Options) { o.MetricsAddress, o.MetricsSecure = address, true })
	for name, test := range map[string]struct {
		token string
		want  int
	}{
		"no token":    {"", http.StatusUnauthorized},
		"bad token":   {"nonsense", http.StatusUnauthorized},
		"not allowed": {w.api.AsServiceAccount(t, home, "stranger").BearerToken, http.StatusForbidden},
		"allowed":     {w.api.AsServiceAccount(t, home, "reader").BearerToken, http.StatusOK},
	} {
		cluster.Await(t, name, func() error {
			got, err := getMetrics(t, address, test.token)
			if err == nil && got != test.want {
				err = fmt.Errorf("status %d, want %d", got, test.want)
			}
			return err
		})
	}
}

// getMetrics returns the status of a response of the self-signed server.
func getMetrics(t *testing.T, address, token string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
