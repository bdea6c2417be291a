// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.io/fairlead/internal/wait"
)

//go:embed openapi.json
var document []byte

// document answers with the OpenAPI document.
func (s *server) document(context.Context, *call) (int, any, error) {
	return http.StatusOK, json.RawMessage(document), nil
}

// write answers with a status code and a body, and returns the code.
func write(w http.ResponseWriter, r *http.Request, status int, body any) (int, error) {
	if body == nil {
		w.WriteHeader(status)
		return status, nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	h := w.Header()
	h.Set("ETag", tagOf(text))
	h.Set("Cache-Control", "no-cache")
	if reads := r.Method == http.MethodGet || r.Method == http.MethodHead; reads && matches(r, "If-None-Match", tagOf(text)) {
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified, nil
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // fails only if the client has left
	return status, nil
}

// tagOf returns the entity tag of a representation: it changes when that changes, and not when
// other parts of the load balancer or its status do.
func tagOf(text []byte) string {
	hash := sha256.Sum256(text)
	return `"` + base64.RawURLEncoding.EncodeToString(hash[:16]) + `"`
}

// tagOfValue returns the entity tag of a part; empty for none.
func tagOfValue(value map[string]any) (string, error) {
	if value == nil {
		return "", nil
	}
	text, err := json.Marshal(value)
	return tagOf(text), err
}

// matches reports whether a header lists an entity tag (RFC 9110, section 13.1), which is empty if
// there is no representation.
func matches(r *http.Request, header, tag string) bool {
	for _, value := range r.Header.Values(header) {
		for listed := range strings.SplitSeq(value, ",") {
			listed = strings.TrimSpace(listed)
			if header == "If-None-Match" {
				listed = strings.TrimPrefix(listed, "W/") // the weak comparison
			}
			if tag != "" && (listed == "*" || listed == tag) {
				return true
			}
		}
	}
	return false
}

// checkConditions returns an httpError unless the conditions of a write hold for a part.
func checkConditions(r *http.Request, value map[string]any) error {
	tag, err := tagOfValue(value)
	switch {
	case err != nil:
		return err
	case len(r.Header.Values("If-Match")) > 0 && !matches(r, "If-Match", tag):
		return newHTTPError(http.StatusPreconditionFailed, "the ETag differs from If-Match: fetch the resource again")
	case matches(r, "If-None-Match", tag):
		return newHTTPError(http.StatusPreconditionFailed, "it already exists")
	}
	return nil
}

// get answers with a part.
func get(find locate, noun string) handler {
	return func(s *server, ctx context.Context, c *call) (int, any, error) {
		object, err := s.store.Get(ctx, c.project, c.balancer)
		if err != nil {
			return 0, nil, err
		}
		p, err := find(object, c.names)
		if err == nil && p.value == nil {
			err = newHTTPError(http.StatusNotFound, "no such "+noun)
		}
		return http.StatusOK, p.value, err
	}
}

// put creates or replaces a part. Only the whole load balancer is created if there is none.
func put(find locate, whole bool) handler {
	return func(s *server, ctx context.Context, c *call) (status int, body any, err error) {
		err = attempt(ctx, func() error {
			object, err := s.store.Get(ctx, c.project, c.balancer)
			isNew := whole && apierrors.IsNotFound(err)
			switch {
			case isNew:
				object = newObject(c.balancer)
			case err != nil:
				return err
			case object.GetDeletionTimestamp() != nil:
				return newHTTPError(http.StatusConflict, "the load balancer is being deleted")
			}
			p, err := find(object, c.names)
			if err != nil {
				return err
			}
			if err := checkConditions(c.request, p.value); err != nil {
				return err
			}
			status = http.StatusOK
			if p.value == nil {
				status = http.StatusCreated
			}
			if err := p.put(c.body); err != nil {
				return err
			}
			if err := s.save(ctx, c.project, object, isNew); err != nil {
				return httpErrorOf(err).within(p.path, p.as)
			}
			p, err = find(object, c.names)
			body = p.value
			return err
		})
		return status, body, err
	}
}

// save creates or updates a load balancer. One that was deleted meanwhile is a conflict.
func (s *server) save(ctx context.Context, project string, object *unstructured.Unstructured, isNew bool) error {
	if isNew {
		return s.store.Create(ctx, project, object)
	}
	err := s.store.Update(ctx, project, object)
	if apierrors.IsNotFound(err) {
		return apierrors.NewConflict(balancers, object.GetName(), err)
	}
	return err
}

// remove deletes a part.
func remove(find locate, noun string) handler {
	return func(s *server, ctx context.Context, c *call) (int, any, error) {
		return http.StatusNoContent, nil, attempt(ctx, func() error {
			object, err := s.store.Get(ctx, c.project, c.balancer)
			if err != nil {
				return err
			}
			p, err := find(object, c.names)
			switch {
			case err != nil:
				return err
			case p.value == nil:
				return newHTTPError(http.StatusNotFound, "no such "+noun)
			}
			if err := checkConditions(c.request, p.value); err != nil {
				return err
			}
			if p.remove == nil {
				return s.store.Delete(ctx, c.project, object)
			}
			if err := p.remove(); err != nil {
				return err
			}
			return s.save(ctx, c.project, object, false)
		})
	}
}

// conflictTimeout is how long a write is tried that conflicts with others. Among many writers an
// attempt succeeds once in as many: delays stay short.
const conflictTimeout = storeTimeout / 2

// attempt calls try until it has no conflict with other writes.
func attempt(ctx context.Context, try func() error) error {
	delay := wait.Backoff{First: 10 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: 1}
	end := time.After(conflictTimeout)
	for failures := 1; ; failures++ {
		err := try()
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		select {
		case <-time.After(delay.Delay(failures)):
		case <-end:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// defaultLimit and maxLimit are numbers of load balancers of a page.
const defaultLimit, maxLimit = 100, 500

// balancerList is a page of load balancers.
type balancerList struct {
	Items []map[string]any `json:"items"`
	// Continue is the parameter of the next page; empty after the last one.
	Continue string `json:"continue,omitempty"`
}

// numberIn returns a parameter of a query, 1 to most; without it otherwise.
func numberIn(query url.Values, name string, most, otherwise int64) (int64, error) {
	if !query.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(query.Get(name), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, newHTTPError(http.StatusBadRequest, "the query is invalid", fieldError{name, fmt.Sprintf("want 1 to %d", most)})
	}
	return n, nil
}

// list answers with a page of load balancers.
func (s *server) list(ctx context.Context, c *call) (int, any, error) {
	query := c.request.URL.Query()
	page := Page{Continue: query.Get("continue")}
	var err error
	if page.Limit, err = numberIn(query, "limit", maxLimit, defaultLimit); err != nil {
		return 0, nil, err
	}
	if page.Labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return 0, nil, newHTTPError(http.StatusBadRequest, "the query is invalid", fieldError{"labelSelector", err.Error()})
	}
	found, err := s.store.List(ctx, c.project, page)
	if err != nil {
		return 0, nil, err
	}
	answer := balancerList{Items: []map[string]any{}, Continue: found.GetContinue()}
	for i := range found.Items {
		answer.Items = append(answer.Items, shown(&found.Items[i]))
	}
	return http.StatusOK, answer, nil
}
