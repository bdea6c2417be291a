// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
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
	return c.request(ctx, http.MethodGet, statusPath, "")
}

// Services asks for the services; the answer is a list of Service as JSON.
func (c *Client) Services(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, servicesPath, "")
}

// Backends asks for the backends of one service, or of all if the name is
// empty; the answer is a list of Backend as JSON.
func (c *Client) Backends(ctx context.Context, service string) ([]byte, error) {
	return c.request(ctx, http.MethodGet, backendsPath, service)
}

// Reload makes the agent read its configuration now. The error says why it was
// refused.
func (c *Client) Reload(ctx context.Context) error {
	_, err := c.request(ctx, http.MethodPost, reloadPath, "")
	return err
}

func (c *Client) request(ctx context.Context, method, path, service string) ([]byte, error) {
	// The host is for the protocol's sake only.
	where := url.URL{Scheme: "http", Host: "agent", Path: path}
	if service != "" {
		where.RawQuery = url.Values{"service": {service}}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, where.String(), http.NoBody)
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
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}
