// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/dataplane"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/internal/store"
)

// requestTimeout bounds a request as a whole.
const requestTimeout = 15 * time.Second

// Client sends requests to an agent over its control socket.
type Client struct {
	http http.Client
}

// Dial returns a client of the agent with that socket. It connects for each
// request.
func Dial(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			if op, ok := errors.AsType[*net.OpError](err); ok {
				err = op.Err // the rest repeats the address
			}
			return nil, noAgentError{fmt.Errorf("no agent at %s: %w", socket, err)}
		}
		return conn, nil
	}
	return &Client{http: http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout:   requestTimeout,
	}}
}

// noAgentError says that no agent listens on a socket.
type noAgentError struct{ error }

// Status returns an observe.Status as JSON.
func (c *Client) Status(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, statusPath, nil, nil)
}

// Services returns a list of observe.Service as JSON.
func (c *Client) Services(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, servicesPath, nil, nil)
}

// Backends returns the backends of one service, or of all if the name is empty:
// a list of observe.Backend as JSON.
func (c *Client) Backends(ctx context.Context, service string) ([]byte, error) {
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	return c.request(ctx, http.MethodGet, backendsPath, query, nil)
}

// Traces returns the data plane's decisions about packets, MaxTracePackets at most: a list of
// observe.Trace as JSON, in their order.
func (c *Client) Traces(ctx context.Context, packets []dataplane.Packet) ([]byte, error) {
	body, err := json.Marshal(traceRequest{Packets: packets})
	if err != nil {
		return nil, err
	}
	return c.request(ctx, http.MethodPost, tracePath, nil, body)
}

// Flows returns recorded flows: an observe.Flows as JSON.
func (c *Client) Flows(ctx context.Context, query FlowQuery) ([]byte, error) {
	return c.request(ctx, http.MethodGet, flowsPath, query.values(), nil)
}

// Top returns the busiest services and backends, at most limit of each: an
// observe.Top as JSON.
func (c *Client) Top(ctx context.Context, limit int) ([]byte, error) {
	return c.request(ctx, http.MethodGet, topPath, url.Values{"limit": {strconv.Itoa(limit)}}, nil)
}

// Routes returns the announced routes and the peers: an observe.Routes as JSON.
func (c *Client) Routes(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, routesPath, nil, nil)
}

// Drains returns all drains: a list of observe.Drain as JSON.
func (c *Client) Drains(ctx context.Context) ([]byte, error) {
	return c.request(ctx, http.MethodGet, drainsPath, nil, nil)
}

// Drain takes a target out of service, and returns when the data plane and the
// routes follow. The traffic of an announced service is moved away first, which takes
// as long as the configuration says, or until ctx ends.
func (c *Client) Drain(ctx context.Context, target store.Target) error {
	return c.change(ctx, drainPath, target)
}

// Undrain takes a target into service again.
func (c *Client) Undrain(ctx context.Context, target store.Target) error {
	return c.change(ctx, undrainPath, target)
}

func (c *Client) change(ctx context.Context, path string, target store.Target) error {
	body, err := json.Marshal(target)
	if err != nil {
		return err
	}
	unlimited := *c
	unlimited.http.Timeout = 0
	_, err = unlimited.request(ctx, http.MethodPost, path, nil, body)
	return err
}

// Reload makes the agent read its configuration. The error says why it was
// refused.
func (c *Client) Reload(ctx context.Context) error {
	_, err := c.request(ctx, http.MethodPost, reloadPath, nil, nil)
	return err
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	// HTTP needs a host.
	where := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, where.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if none, ok := errors.AsType[noAgentError](err); ok {
		return nil, none.error
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

// FlowQuery selects flows. The zero value of a field selects all.
type FlowQuery struct {
	Service string
	Client  netip.Prefix
	Limit   int
}

func (q FlowQuery) values() url.Values {
	values := url.Values{}
	if q.Service != "" {
		values.Set("service", q.Service)
	}
	if q.Client.IsValid() {
		values.Set("client", q.Client.String())
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	return values
}

// Target is a service, a backend or the node: an operator drains it.
type Target = store.Target

// Packet is a packet to trace.
type Packet = dataplane.Packet

// ParseBackend returns the target of a service's backend at an address. Without a
// port it is every backend there.
func ParseBackend(service, address string) (Target, error) {
	target := Target{Service: service}
	if service == "" {
		return target, errors.New("the service has no name")
	}
	if id, err := netip.ParseAddrPort(address); err == nil {
		target.Backend = id
		return target, nil
	}
	host, err := netip.ParseAddr(address)
	if err != nil {
		return target, fmt.Errorf("backend %q: want an address, with or without port", address)
	}
	target.Backend = netip.AddrPortFrom(host, 0)
	return target, lb.CheckAddress(host)
}
