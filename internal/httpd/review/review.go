// SPDX-License-Identifier: Apache-2.0

// Package review admits HTTP clients as the API server of a Kubernetes cluster decides, over TLS
// with a certificate of its own: metrics and status pages show the names and addresses of all
// services. It replaces the filter of controller-runtime, which with the API server's own
// library would take 30 MB of memory in each agent.
package review

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// timeout bounds the reviews of a request.
const timeout = 5 * time.Second

// reportInterval is the shortest time between reports of reviews that failed: strangers can make
// many fail.
const reportInterval = 10 * time.Second

// right is the path that a client has to be allowed to get, whatever it requests: a cluster lets
// every account get paths under /api.
const right = "/metrics"

// Reviewer asks an API server, a few times a second at most.
type Reviewer struct {
	users  authenticationclient.TokenReviewsGetter
	rights authorizationclient.SubjectAccessReviewsGetter
	report rate.Sometimes
}

// New returns a reviewer. The account of the configuration may create TokenReviews and
// SubjectAccessReviews.
func New(config *rest.Config) (*Reviewer, error) {
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	users, err := authenticationclient.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	rights, err := authorizationclient.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	return &Reviewer{users: users, rights: rights, report: rate.Sometimes{Interval: reportInterval}}, nil
}

// Require passes requests with a bearer token whose user may get /metrics, which the API server
// decides (TokenReview, SubjectAccessReview), and all those for the open paths. Others are answered
// with 401 (no valid token), 403 (not allowed) or 500 (the API server doesn't answer).
func (v *Reviewer) Require(next http.Handler, log *slog.Logger, open ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(open, r.URL.Path) {
			code, err := v.review(r)
			if err != nil {
				v.report.Do(func() { log.Warn("request not reviewed", "path", r.URL.Path, "error", err) })
			}
			if code != http.StatusOK {
				http.Error(w, http.StatusText(code), code)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// review returns 200 for a request that is allowed, else the code of the response.
func (v *Reviewer) review(r *http.Request) (code int, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !given || token == "" {
		return http.StatusUnauthorized, nil
	}
	who, err := v.users.TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return http.StatusInternalServerError, err
	case !who.Status.Authenticated:
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	may, err := v.rights.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: right, Verb: "get"},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return http.StatusInternalServerError, err
	case !may.Status.Allowed:
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// TLS returns the configuration of a server with a new self-signed certificate, which clients
// can't verify. It keeps tokens from those who only listen.
func TLS() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "fairlead"}, DNSNames: []string{"fairlead"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), // longer than an agent runs
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
	}, nil
}
