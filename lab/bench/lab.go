// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"time"

	"fairlead.io/fairlead/lab/netlab"
)

// OnInterface calls fn in the namespace of a lab's host with one of its interfaces.
func OnInterface(lab *netlab.Lab, host, name string, fn func(*net.Interface) error) error {
	return lab.Do(host, func() error {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		return fn(dev)
	})
}

// Await waits as netlab.Await does, with a limit of its own.
func Await(ctx context.Context, limit, pause time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return netlab.Await(ctx, pause, func() error { return check(ctx) })
}

// Serve serves HTTP in the namespace of a lab's host until the returned function is called.
func Serve(lab *netlab.Lab, host, address string, handler http.Handler) (stop func() error, err error) {
	var listener net.Listener
	err = lab.Do(host, func() error {
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	return server.Close, nil
}

// IPTables is the native iptables if it is installed; the other one translates to nftables.
func IPTables() string {
	if _, err := exec.LookPath("iptables-legacy"); err == nil {
		return "iptables-legacy"
	}
	return "iptables"
}

// Transport connects from a lab's host.
func Transport(lab *netlab.Lab, host string) *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: 16,
		// The transport's own context outlives the request.
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return lab.Dial(context.Background(), host, network, address)
		},
	}
}

// Client sends requests to Fairlead's HTTP API.
type Client struct {
	HTTP http.Client
	// Base is the URL of a project's load balancers.
	Base, Token string
}

// Do sends a request, which has to succeed, with a body, whose JSON may be given, and returns the
// answer. It repeats requests that the server refuses because there are too many.
func (c *Client) Do(ctx context.Context, method, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusTooManyRequests {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		if err := netlab.Sleep(ctx, time.Duration(max(1, seconds))*time.Second); err != nil {
			return nil, err
		}
		return c.Do(ctx, method, path, body)
	}
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: status %s: %s", method, path, response.Status, answer)
	}
	return answer, err
}
