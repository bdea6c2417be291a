// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/maphash"
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

// encode returns the parts of a body that follow each other; none without a body.
func encode(body any) ([][]byte, error) {
	switch body := body.(type) {
	case nil:
		return nil, nil
	case [][]byte:
		return body, nil
	case json.RawMessage:
		return [][]byte{body}, nil
	}
	text, err := json.Marshal(body)
	return [][]byte{text}, err
}

// size returns the length of a body in bytes.
func size(parts [][]byte) (n int64) {
	for _, p := range parts {
		n += int64(len(p))
	}
	return n
}

// write answers with a status code and a body, and returns the code.
func write(w http.ResponseWriter, r *http.Request, status int, parts [][]byte) int {
	if len(parts) == 0 {
		w.WriteHeader(status)
		return status
	}
	h, tag := w.Header(), tagOf(parts...)
	h.Set("ETag", tag)
	h.Set("Cache-Control", "no-cache")
	if reads := r.Method == http.MethodGet || r.Method == http.MethodHead; reads && matches(r, "If-None-Match", tag) {
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.FormatInt(size(parts)+1, 10))
	w.WriteHeader(status)
	for _, p := range append(parts, []byte{'\n'}) {
		if _, err := w.Write(p); err != nil {
			break // the client has left
		}
	}
	return status
}

// tagOf returns the entity tag of a representation: it changes when that changes, and not when
// other parts of the load balancer or its status do.
func tagOf(parts ...[]byte) string {
	hash := sha256.New()
	for _, p := range parts {
		hash.Write(p)
	}
	return `"` + base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:16]) + `"`
}

// tagOfPart returns the entity tag of a part; empty if there is none.
func tagOfPart(p part) (string, error) {
	if p.value == nil {
		return "", nil
	}
	text, err := json.Marshal(p.value)
	if p.text != nil {
		text, err = shownText(p.text)
	}
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
func checkConditions(r *http.Request, p part) error {
	if len(r.Header.Values("If-Match"))+len(r.Header.Values("If-None-Match")) == 0 {
		return nil
	}
	tag, err := tagOfPart(p)
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

// read reads the load balancer of a call, which may take some bytes of memory for each byte of it.
func (s *server) read(ctx context.Context, c *call, factor int64) ([]byte, error) {
	text, err := s.store.Get(ctx, c.project, c.balancer)
	if err != nil {
		return nil, err
	}
	if err := c.hold(factor * int64(len(text))); err != nil {
		return nil, err
	}
	return text, c.work(ctx)
}

// object reads the load balancer of a call to find a part in it. Of the whole one the specification
// isn't decoded.
func (s *server) object(ctx context.Context, c *call, whole bool) (*unstructured.Unstructured, []byte, error) {
	factor := int64(treeFactor)
	if whole {
		factor = textFactor
	}
	text, err := s.read(ctx, c, factor)
	if err != nil {
		return nil, nil, err
	}
	if whole {
		object, _, err := decodeHead(text)
		return object, text, err
	}
	object, err := decode(text)
	return object, nil, err
}

// getBalancer answers with a load balancer.
func (s *server) getBalancer(ctx context.Context, c *call) (int, any, error) {
	text, err := s.read(ctx, c, textFactor)
	if err != nil {
		return 0, nil, err
	}
	shown, err := shownText(text)
	return http.StatusOK, json.RawMessage(shown), err
}

// get answers with a part.
func get(find locate, noun string) handler {
	return func(s *server, ctx context.Context, c *call) (int, any, error) {
		object, _, err := s.object(ctx, c, false)
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
		err = s.attempt(ctx, c, func() error {
			object, text, err := s.object(ctx, c, whole)
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
			p.text = text
			if err := checkConditions(c.request, p); err != nil {
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
func remove(find locate, noun string, whole bool) handler {
	return func(s *server, ctx context.Context, c *call) (int, any, error) {
		return http.StatusNoContent, nil, s.attempt(ctx, c, func() error {
			object, text, err := s.object(ctx, c, whole)
			if err != nil {
				return err
			}
			p, err := find(object, c.names)
			p.text = text
			switch {
			case err != nil:
				return err
			case p.value == nil:
				return newHTTPError(http.StatusNotFound, "no such "+noun)
			}
			if err := checkConditions(c.request, p); err != nil {
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

var lockSeed = maphash.MakeSeed()

// attempt calls try until it has no conflict with writes of other servers.
func (s *server) attempt(ctx context.Context, c *call, try func() error) error {
	lock := &s.writes[maphash.String(lockSeed, c.project+"/"+c.balancer)%uint64(len(s.writes))]
	delay := wait.Backoff{First: 10 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: 1}
	end := time.After(conflictTimeout)
	for failures := 1; ; failures++ {
		lock.Lock()
		err := try()
		lock.Unlock()
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
	answer, next, err := s.page(ctx, c, page)
	if err != nil {
		return 0, nil, err
	}
	end := `]}`
	if next != "" {
		end = `],"continue":` + strconv.Quote(next) + `}` // a token has no characters that JSON escapes
	}
	return http.StatusOK, append(answer, []byte(end)), nil
}

const (
	// maxPage is how many bytes of objects are read for a page, unless there is only one.
	maxPage = 4 << 20
	// firstPiece is how many objects are read before their size is known, maxPiece the largest number
	// later: others may be larger.
	firstPiece, maxPiece = 8, 16
)

// page reads a page in pieces, and returns the beginning of the answer with all of its items. It ends
// early where large objects were read, even if none of them has the labels.
func (s *server) page(ctx context.Context, c *call, all Page) (answer [][]byte, next string, err error) {
	answer = [][]byte{[]byte(`{"items":[`)}
	items, read, largest := int64(0), 0, maxPage/firstPiece
	for piece := all; ; piece.Continue = next {
		piece.Limit = min(all.Limit-items, maxPiece, max(1, int64((maxPage-read)/largest)))
		found, err := s.store.List(ctx, c.project, piece)
		if err != nil {
			return nil, "", err
		}
		next, read, largest = found.Continue, read+found.Size, 1
		if err := c.hold(int64(read + 2*found.Size)); err != nil {
			return nil, "", err
		}
		if err := c.work(ctx); err != nil {
			return nil, "", err
		}
		for _, text := range found.Items {
			shown, err := shownText(text)
			if err != nil {
				return nil, "", err
			}
			if items > 0 {
				answer = append(answer, []byte(`,`))
			}
			answer = append(answer, shown)
			largest = max(largest, len(text))
			items++
		}
		if next == "" || items == all.Limit || read+largest > maxPage {
			return answer, next, nil
		}
	}
}
