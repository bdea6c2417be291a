// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Client sends requests to Octavia's API as a user of the project with the user's name.
type Client struct {
	cloud *Cloud
	user  string
	http  http.Client

	mu    sync.Mutex
	token string // of Keystone; empty before the first request
}

// requestTimeout is how long a request may take, also on a busy machine: a call of the driver repeats its own
// requests for ten seconds.
const requestTimeout = 5 * time.Minute

// NewClient returns a client. It may be used by several goroutines.
func (c *Cloud) NewClient(user string) *Client {
	return &Client{cloud: c, user: user, http: http.Client{Timeout: requestTimeout, Transport: c.Transport()}}
}

// Transport connects to services from the controller.
func (c *Cloud) Transport() *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: 16,
		// The transport's own context outlives the request.
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return c.Dial(context.Background(), Controller, network, address)
		},
	}
}

// Call sends a request to a path below /v2/lbaas/ with an optional body, and returns status and body of the answer. The
// error is one of the connection, or of Keystone.
func (c *Client) Call(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	for range 2 { // the second time with a new token
		token, err := c.authenticate(ctx)
		if err != nil {
			return 0, nil, err
		}
		header := http.Header{"Content-Type": {"application/json"}, "X-Auth-Token": {token}}
		got, err := c.send(ctx, method, "http://"+octaviaAddress+"/v2/lbaas/"+path, header, text)
		if err != nil || got.status != http.StatusUnauthorized {
			return got.status, got.body, err
		}
		c.mu.Lock()
		c.token = ""
		c.mu.Unlock()
	}
	return http.StatusUnauthorized, nil, nil
}

// Get decodes the answer to a GET request. Another status than 200 is an error.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.decode(ctx, http.MethodGet, path, nil, into)
}

// Create decodes the answer to a POST request, which has to succeed.
func (c *Client) Create(ctx context.Context, path string, body, into any) error {
	return c.decode(ctx, http.MethodPost, path, body, into)
}

func (c *Client) decode(ctx context.Context, method, path string, body, into any) error {
	status, answer, err := c.Call(ctx, method, path, body)
	if err != nil {
		return err
	}
	if status/100 != 2 {
		return fmt.Errorf("%s %s: status %d: %s", method, path, status, answer)
	}
	return json.Unmarshal(answer, into)
}

// authenticate returns the token of Keystone.
func (c *Client) authenticate(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" {
		return c.token, nil
	}
	domain := map[string]string{"id": "default"}
	text, err := json.Marshal(map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{
			"user": map[string]any{"name": c.user, "password": "secret", "domain": domain},
		}},
		"scope": map[string]any{"project": map[string]any{"name": c.user, "domain": domain}},
	}})
	if err != nil {
		return "", err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	got, err := c.send(ctx, http.MethodPost, "http://"+keystoneAddress+"/v3/auth/tokens", header, text)
	if err != nil {
		return "", err
	}
	if got.status != http.StatusCreated {
		return "", fmt.Errorf("keystone: status %d: %s", got.status, got.body)
	}
	c.token = got.header.Get("X-Subject-Token")
	return c.token, nil
}

// answer is an answer of a service.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request and reads the answer.
func (c *Client) send(ctx context.Context, method, url string, header http.Header, body []byte) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	request.Header = header
	response, err := c.http.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, text}, err
}
