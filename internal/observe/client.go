// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
)

// requestTimeout bounds a request as a whole.
const requestTimeout = 15 * time.Second

// Client asks an agent over its control socket.
type Client struct {
	http http.Client
}

// Dial returns a client of the agent that listens at a socket. It connects for
// each request.
func Dial(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, noAgentError{socket, err}
		}
		return conn, nil
	}
	return &Client{http: http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout:   requestTimeout,
	}}
}

// noAgentError says that nobody listens at a socket.
type noAgentError struct {
	socket string
	cause  error
}

func (e noAgentError) Error() string {
	// What the net package says of the address has been said already.
	cause := e.cause
	if op, ok := errors.AsType[*net.OpError](cause); ok {
		cause = op.Err
	}
	return fmt.Sprintf("no agent at %s: %v", e.socket, cause)
}

func (e noAgentError) Unwrap() error { return e.cause }

// Status asks for the agent as a whole; the answer is a Status as JSON.
func (c *Client) Status(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, statusPath, nil, nil)
}

// Services asks for the services; the answer is a list of Service as JSON.
func (c *Client) Services(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, servicesPath, nil, nil)
}

// Backends asks for the backends of one service, or of all if the name is
// empty; the answer is a list of Backend as JSON.
func (c *Client) Backends(ctx context.Context, service string) ([]byte, error) {
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	return c.request(ctx, http.MethodGet, backendsPath, query, nil)
}

// Traces asks what the data plane would do with packets, MaxTracePackets at most;
// the answer is a list of Trace as JSON, in their order.
func (c *Client) Traces(ctx context.Context, packets []dataplane.Packet) ([]byte, error) {
	body, err := json.Marshal(traceRequest{Packets: packets})
	if err != nil {
		return nil, err
	}
	return c.request(ctx, http.MethodPost, tracePath, nil, body)
}

// Flows asks for recorded flows; the answer is a Flows as JSON.
func (c *Client) Flows(ctx context.Context, query FlowQuery) ([]byte, error) {
	return c.request(ctx, http.MethodGet, flowsPath, query.values(), nil)
}

// Top asks for the busiest services and backends, so many of each at most; the
// answer is a Top as JSON.
func (c *Client) Top(ctx context.Context, limit int) ([]byte, error) {
	return c.request(ctx, http.MethodGet, topPath, url.Values{"limit": {strconv.Itoa(limit)}}, nil)
}

// Routes asks what is announced to whom; the answer is a Routes as JSON.
func (c *Client) Routes(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, routesPath, nil, nil)
}

// Drains asks for all drains; the answer is a list of Drain as JSON.
func (c *Client) Drains(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, drainsPath, nil, nil)
}

// Drain takes a target out of service, and returns when the data plane and the
// routers have been told. A service that is announced is moved away first, which
// takes as long as the configuration says, or until ctx ends.
func (c *Client) Drain(ctx context.Context, target DrainTarget) error {
	return c.change(ctx, drainPath, target)
}

// Undrain takes a target into service again.
func (c *Client) Undrain(ctx context.Context, target DrainTarget) error {
	return c.change(ctx, undrainPath, target)
}

func (c *Client) change(ctx context.Context, path string, target DrainTarget) error {
	body, err := json.Marshal(target)
	if err != nil {
		return err
	}
	patient := *c
	patient.http.Timeout = 0
	_, err = patient.request(ctx, http.MethodPost, path, nil, body)
	return err
}

// Reload makes the agent read its configuration now. The error says why it was
// refused.
func (c *Client) Reload(ctx context.Context) error {
	_, err := c.request(ctx, http.MethodPost, reloadPath, nil, nil)
	return err
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	// The host is for the protocol's sake only.
	where := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, where.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if none, ok := errors.AsType[noAgentError](err); ok {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(answer)))
	}
	return answer, nil
}
