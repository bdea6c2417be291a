// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// httpError is the body of an error response (RFC 9457). Its type is "about:blank": the title is
// the status code's.
type httpError struct {
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail,omitempty"`
	Errors []fieldError `json:"errors,omitempty"`
	// retryAfter is when the client may try again; 0 for no hint.
	retryAfter time.Duration
	// cause is logged, but not sent to the client.
	cause error
}

// fieldError is an error of one field of a request.
type fieldError struct {
	// Field is the path of the field in the body, such as "listeners[0].port". Rules about several
	// parts name a field of the whole load balancer.
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func (p *httpError) Error() string { return p.Title + ": " + p.Detail }

func (p *httpError) Unwrap() error { return p.cause }

func newHTTPError(status int, detail string, fields ...fieldError) *httpError {
	return &httpError{Title: http.StatusText(status), Status: status, Detail: detail, Errors: fields}
}

// invalid is an error of one field of the body.
func invalid(field, detail string) *httpError {
	return newHTTPError(http.StatusUnprocessableEntity, "the load balancer is invalid", fieldError{field, detail})
}

// write answers with the error.
func (p *httpError) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="fairlead"`)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // fails only if the client has left
}

// storeRetry is when a client may try again that the store didn't answer.
const storeRetry = time.Second

// httpErrorOf translates an error of a handler or of the store.
func httpErrorOf(err error) *httpError {
	if known, ok := errors.AsType[*httpError](err); ok {
		return known
	}
	p := translate(err)
	p.cause = err
	return p
}

// translate translates an error of the store.
func translate(err error) *httpError {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return unavailable()
	}
	message := status.ErrStatus.Message
	switch code := int(status.ErrStatus.Code); {
	case apierrors.IsNotFound(err):
		return newHTTPError(http.StatusNotFound, "no such load balancer or project")
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return newHTTPError(http.StatusConflict, "the load balancer is being changed by other requests")
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return newHTTPError(http.StatusGone, "the continue token has expired: list again without it")
	case apierrors.IsRequestEntityTooLargeError(err):
		return newHTTPError(http.StatusRequestEntityTooLarge, "the load balancer is too large")
	case apierrors.IsForbidden(err):
		return newHTTPError(http.StatusForbidden, forbidden(message))
	case apierrors.IsInvalid(err):
		return newHTTPError(http.StatusUnprocessableEntity, "the load balancer is invalid", causes(status.ErrStatus.Details)...)
	case apierrors.IsBadRequest(err):
		return badRequest(message)
	case apierrors.IsTooManyRequests(err), apierrors.IsUnauthorized(err), code < 400 || code >= 500:
		return unavailable()
	}
	return newHTTPError(http.StatusUnprocessableEntity, message)
}

func unavailable() *httpError {
	p := newHTTPError(http.StatusServiceUnavailable, "the store doesn't answer")
	p.retryAfter = storeRetry
	return p
}

// forbidden returns why a cluster or a webhook refuses a request, such as a quota, but not the name
// of this server's account.
func forbidden(message string) string {
	if strings.HasPrefix(message, "admission webhook ") {
		return message
	}
	_, why, found := strings.Cut(message, " is forbidden: ")
	if !found || strings.HasPrefix(why, "User ") {
		return "this server has no rights in the namespace of the project"
	}
	return why
}

// causes returns the fields that a Kubernetes API server complains about.
func causes(details *metav1.StatusDetails) (fields []fieldError) {
	if details == nil {
		return nil
	}
	for _, c := range details.Causes {
		fields = append(fields, fieldError{fieldOf(c.Field), c.Message})
	}
	return fields
}

// fieldOf translates the path of a field of the object.
func fieldOf(path string) string {
	for _, part := range []string{"spec.", "metadata."} {
		if field, found := strings.CutPrefix(path, part); found {
			return field
		}
	}
	return path
}

var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// badRequest lists unknown fields, which a Kubernetes API server has in its message only.
func badRequest(message string) *httpError {
	p := newHTTPError(http.StatusBadRequest, message)
	for _, m := range unknownField.FindAllStringSubmatch(message, -1) {
		p.Detail = "the body has unknown fields"
		p.Errors = append(p.Errors, fieldError{fieldOf(m[1]), "unknown field"})
	}
	return p
}

// within makes the fields of an error relative to a part with this path in the load balancer,
// which is called as in the body, "" if it is the body.
func (p *httpError) within(path, as string) *httpError {
	for i := range p.Errors {
		rest, inside := strings.CutPrefix(p.Errors[i].Field, path)
		if path == "" || !inside || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		p.Errors[i].Field = strings.TrimPrefix(as+rest, ".")
	}
	return p
}
