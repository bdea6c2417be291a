// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.io/fairlead/internal/source"
	"fairlead.io/fairlead/internal/version"
)

const (
	// connectTimeout bounds the time until there is a connection, responseTimeout that until the
	// header of the response.
	connectTimeout, responseTimeout = 5 * time.Second, 10 * time.Second
	// maxErrorBody is how much of an error response is read, in bytes.
	maxErrorBody = 4 << 10
)

// servers are the API servers, one of which is followed. Their methods may be called concurrently.
type servers struct {
	source.Server
	log    *slog.Logger
	status *source.Status
	// transport returns how requests are sent.
	transport func(*tls.Config) http.RoundTripper

	mu sync.Mutex
	// followed is the URL of the server that is being followed; empty for none.
	followed string
	// errors are why each server could not be followed.
	errors []string
}

// current returns the URL of the server that is being followed; empty for none.
func (s *servers) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.followed
}

// failed records why a server isn't followed.
func (s *servers) failed(server int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = ""
	s.errors[server] = s.URLs[server] + ": " + err.Error()
	all := slices.DeleteFunc(slices.Clone(s.errors), func(text string) bool { return text == "" })
	if s.status.Failed(strings.Join(all, "; ")) {
		s.log.Warn("API server unreachable", "server", s.URLs[server], "error", err)
	}
}

// responded records that a server has sent something.
func (s *servers) responded(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed = server
	clear(s.errors)
	s.status.Responded(server)
}

// send sends a request over a connection of its own, with the current content of the credential
// files. It is an error if the response isn't a success.
func (s *servers) send(ctx context.Context, method, server, path string, body []byte) (*http.Response, error) {
	credentials, err := s.Credentials()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "fairlead-agent/"+version.Version)
	if credentials.Token != "" {
		request.Header.Set("Authorization", "Bearer "+credentials.Token)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{
		Transport: s.transport(credentials.TLS),
		// Another server could be sent the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return nil, wrapped.Err // the rest repeats the URL
	}
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, refusal(response)
	}
	return response, nil
}

// newTransport returns how requests are sent over connections that aren't reused.
func newTransport(config *tls.Config) http.RoundTripper {
	return &http.Transport{
		DialContext:       (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSClientConfig:   config,
		DisableKeepAlives: true, TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: responseTimeout,
	}
}

// refusal returns the error of an error response (RFC 9457).
func refusal(response *http.Response) error {
	var problem struct{ Detail string }
	text, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err == nil {
		err = json.Unmarshal(text, &problem)
	}
	if err != nil || problem.Detail == "" {
		return errors.New(response.Status)
	}
	return fmt.Errorf("%s: %.200q", response.Status, problem.Detail)
}
