// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	kjson "sigs.k8s.io/json"
)

const (
	// maxBody is the largest size of a body in bytes. A load balancer of that size is about the
	// largest that etcd stores.
	maxBody = 1 << 20
	// storeTimeout bounds all that a request does in the store.
	storeTimeout = 10 * time.Second
	// A client without valid credentials may fail failureBurst times in a row, and once every
	// second after that, until its requests aren't answered individually any more.
	failureRate, failureBurst, failureClients = 1, 10, 4096
	// maxClients is the number of clients with a rate of their own.
	maxClients = 4096
	// reportInterval is the shortest time between reports of failed authentication.
	reportInterval = 10 * time.Second
)

// server answers requests of the API.
type server struct {
	store Store
	// followed is the store if nodes follow it, else nil.
	followed followed
	keys     *keyring
	log      *slog.Logger
	requests *limits // of clients
	failures *limits // of authentication, by address
	waits    *shares // of requests that wait for a status
	board    *board
	memory   *shares // in bytes, of requests
	// workers has an entry for each call that works.
	workers chan struct{}
	// writes has locks, one for many load balancers, that this server holds while it writes one: its
	// own calls have no conflicts with each other.
	writes [64]sync.Mutex
	// report limits reports of failed authentication, which strangers cause.
	report  rate.Sometimes
	metrics *metrics
	mux     *http.ServeMux
}

// newServer returns a server with a rate of requests per second for each client.
func newServer(store Store, keys *keyring, perSecond int, log *slog.Logger) *server {
	s := &server{
		store: store, keys: keys, log: log,
		requests: newLimits(float64(perSecond), 2*perSecond, maxClients),
		failures: newLimits(failureRate, failureBurst, failureClients),
		waits:    newShares(maxWaits),
		board:    newBoard(),
		memory:   newShares(workMemory),
		workers:  make(chan struct{}, runtime.GOMAXPROCS(0)),
		report:   rate.Sometimes{Interval: reportInterval},
		mux:      http.NewServeMux(),
	}
	s.metrics = newMetrics(keys)
	s.followed, _ = store.(followed)
	methods := map[string][]string{}
	for _, r := range routes() {
		if r.nodes && s.followed == nil {
			continue
		}
		s.mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, request *http.Request) { s.serve(&r, w, request) })
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, allowed := range methods {
		s.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			newHTTPError(http.StatusMethodNotAllowed, "method not allowed").write(w)
		})
	}
	s.mux.HandleFunc("/", notFound)
	return s
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	newHTTPError(http.StatusNotFound, "no such path").write(w)
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The mux would redirect such a path to another one.
	if p := r.URL.EscapedPath(); path.Clean("/"+p) != p {
		notFound(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// call is a request that is admitted.
type call struct {
	names
	client  identity
	request *http.Request
	// body is the object of the body; nil if the route has none.
	body map[string]any

	server *server
	// held is the memory of the call in bytes, bodyCost that for its body, and working whether it has
	// an entry in the workers.
	held, bodyCost int64
	working        bool
}

// handler answers a call with a body, nil for none, and its status code. Answers with a body get
// an entity tag.
type handler func(*server, context.Context, *call) (status int, body any, err error)

// serve answers a request for a route. All routes are admitted, limited and logged here.
func (s *server) serve(route *route, w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	client, err := s.admit(route, r)
	status := 0
	if err == nil {
		status, err = s.answer(route, client, w, r)
	}
	left := errors.Is(err, context.Canceled) // by the client, which gets no answer
	if err != nil {
		p := httpErrorOf(err)
		status = p.Status
		if status == http.StatusServiceUnavailable && !left {
			s.log.Warn("request failed", "method", r.Method, "path", r.URL.Path, "error", p.cause)
		}
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody)) // or the client may not get the answer
		p.write(w)
	}
	if !left {
		s.metrics.count(r.Method, status)
	}
	if !left && route.stream == nil {
		s.metrics.observe(r.Method, time.Since(began))
	}
	if reported := route.nodes && err == nil; route.writes() && client.name != "" && !reported {
		project := r.PathValue("project")
		s.log.Info("write", "client", client.name, "address", r.RemoteAddr, "project", project, "method", r.Method,
			"object", strings.TrimPrefix(r.URL.Path, "/v1/projects/"+project+"/"), "status", status)
	}
}

// admit returns the client of a request that it may make. The error is an httpError.
func (s *server) admit(route *route, r *http.Request) (identity, error) {
	client, known := s.keys.identify(r)
	if !known {
		return client, s.refuse(r)
	}
	if delay := s.requests.take(client.name, time.Now()); delay > 0 {
		return client, tooMany(delay)
	}
	switch isNode := len(client.nodes) > 0; {
	case route.nodes && !isNode:
		return client, newHTTPError(http.StatusForbidden, "this endpoint needs node credentials")
	case !route.nodes && isNode:
		return client, newHTTPError(http.StatusForbidden, "this endpoint needs project credentials")
	case strings.Contains(route.path, "{node}") && !slices.Contains(client.nodes, r.PathValue("node")):
		return client, newHTTPError(http.StatusForbidden, "these credentials are of another node")
	case !route.shared && !route.nodes && !client.may(r.PathValue("project")):
		return client, newHTTPError(http.StatusNotFound, "project not found, or not yours")
	case route.writes() && client.readOnly:
		return client, newHTTPError(http.StatusForbidden, "these credentials are for reading only")
	}
	return client, nil
}

// refuse returns the error of a request without valid credentials. Failures of other clients at the
// same address never limit valid credentials.
func (s *server) refuse(r *http.Request) error {
	s.metrics.failures.Inc()
	if delay := s.failures.take(clientKey(r.RemoteAddr), time.Now()); delay > 0 {
		return tooMany(delay)
	}
	s.report.Do(func() { s.log.Warn("authentication failed", "address", r.RemoteAddr) })
	return newHTTPError(http.StatusUnauthorized, "want a valid bearer token or client certificate")
}

func tooMany(delay time.Duration) error {
	p := newHTTPError(http.StatusTooManyRequests, "too many requests")
	p.retryAfter = delay
	return p
}

// answer answers a request that is admitted, or returns an httpError.
func (s *server) answer(route *route, client identity, w http.ResponseWriter, r *http.Request) (int, error) {
	n, err := namesOf(r)
	if err != nil {
		return 0, err
	}
	if err := checkQuery(route, r); err != nil {
		return 0, err
	}
	if route.stream != nil {
		route.stream(s, w, r)
		return http.StatusOK, nil
	}
	c := &call{names: n, client: client, request: r, server: s}
	defer c.rest(0)
	var text []byte
	if route.body != "" {
		if text, err = c.readBody(w); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	if route.body != "" {
		if c.body, err = c.decodeBody(ctx, text); err != nil {
			return 0, err
		}
	}
	status, body, err := route.handle(s, ctx, c)
	if err != nil {
		return 0, err
	}
	parts, err := encode(body)
	if err != nil {
		return 0, err
	}
	c.body = nil
	c.rest(size(parts))
	return write(w, r, status, parts), nil
}

// checkQuery rejects parameters that the route doesn't have: a misspelt filter would select
// everything, and so would one that can't be decoded.
func checkQuery(route *route, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return newHTTPError(http.StatusBadRequest, "the query can't be decoded: "+err.Error())
	}
	for name, values := range query {
		if !slices.Contains(route.query, name) {
			return newHTTPError(http.StatusBadRequest, "the query has unknown parameters", fieldError{name, "unknown parameter"})
		}
		if len(values) > 1 {
			return newHTTPError(http.StatusBadRequest, "the query has a parameter twice", fieldError{name, "want one value"})
		}
	}
	return nil
}

// readBody reads the body, once there is memory for all that follows.
func (c *call) readBody(w http.ResponseWriter) ([]byte, error) {
	r := c.request
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, newHTTPError(http.StatusUnsupportedMediaType, "want Content-Type: application/json")
	}
	length := r.ContentLength
	if length < 0 || length > maxBody {
		length = maxBody
	}
	c.bodyCost = treeFactor * length
	if err := c.hold(0); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, newHTTPError(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody))
	}
	if err != nil {
		return nil, newHTTPError(http.StatusBadRequest, "the body could not be read")
	}
	return text, nil
}

// decodeBody decodes a JSON object.
func (c *call) decodeBody(ctx context.Context, text []byte) (map[string]any, error) {
	if err := c.work(ctx); err != nil {
		return nil, err
	}
	var body map[string]any
	repeated, err := kjson.UnmarshalStrict(text, &body)
	switch {
	case err != nil:
		return nil, newHTTPError(http.StatusBadRequest, "the body isn't a JSON object: "+err.Error())
	case len(repeated) > 0:
		p := newHTTPError(http.StatusBadRequest, "the body has a field twice")
		for _, err := range repeated {
			field := ""
			if named, ok := errors.AsType[kjson.FieldError](err); ok {
				field = named.FieldPath()
			}
			p.Errors = append(p.Errors, fieldError{field, "duplicate field"})
		}
		return nil, p
	case body == nil:
		return nil, newHTTPError(http.StatusBadRequest, "the body isn't a JSON object")
	}
	return body, nil
}
