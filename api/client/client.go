// SPDX-License-Identifier: Apache-2.0

// Package client is a client for the HTTP API of "fairlead apiserver", by which clouds
// create load balancers. Its types and requests are generated from the API's OpenAPI
// document; docs/guides/api.md shows how to use them.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config generate.yaml ../../internal/apiserver/openapi.json
//go:generate sed -i -E "s|// ([[:alnum:]]+) \\1 |// \\1 |" generated.go

// Client sends requests to an API server. Its requests may run side by side.
//
// Requests that are answered with a body return it and its entity tag (ETag), which changes
// when the body does. An answer that is not a success, 304 included, is an *Error.
type Client struct {
	// URL is where the server is, such as https://fairlead-apiserver.example:9575.
	URL string
	// Token is the bearer token. Without one, HTTP has a client certificate.
	Token string
	// HTTP sends requests. It knows the authority of the server's certificate, and may have a
	// time limit. The default is http.DefaultClient.
	HTTP *http.Client
}

// Condition is a condition of a request. If it isn't met, the server changes nothing and
// answers 412, or 304 to a GET.
type Condition struct{ header, etag string }

// IfMatch is met if the part has this entity tag, "*" for any. Writes have this condition.
func IfMatch(etag string) Condition { return Condition{"If-Match", etag} }

// IfNoneMatch is met if the part has another entity tag, or with "*" if there is no such part.
// A GET has an entity tag here, a PUT "*".
func IfNoneMatch(etag string) Condition { return Condition{"If-None-Match", etag} }

// Error is an answer that is not a success, with the server's ProblemDetails (RFC 9457).
type Error struct {
	ProblemDetails
	// RetryAfter is the time after which the client may repeat the request. Answers 429 and 503
	// have one.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d %s", e.Status, e.Title)
	if e.Detail != "" {
		text.WriteString(": " + e.Detail)
	}
	for _, f := range e.Errors {
		fmt.Fprintf(&text, "; %s: %s", f.Field, f.Detail)
	}
	return text.String()
}

// errorOf returns the error of an answer. A proxy in between may answer without problem details.
func errorOf(response *http.Response, body []byte) error {
	e := &Error{}
	if json.Unmarshal(body, &e.ProblemDetails) != nil || e.Status != response.StatusCode {
		e.ProblemDetails = ProblemDetails{Status: response.StatusCode, Title: http.StatusText(response.StatusCode)}
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// request holds the parts of a request of the document.
type request struct {
	method string
	// path has a name for each parameter in braces.
	path  string
	names map[string]string
	query url.Values
	// body is encoded as JSON; nil for none.
	body       any
	conditions []Condition
}

// target returns the URL at a server.
func (r *request) target(server string) (string, error) {
	path := r.path
	for parameter, name := range r.names {
		// A proxy would resolve these to another path, and a DELETE would delete its resource.
		if name == "" || name == "." || name == ".." {
			return "", fmt.Errorf("%s %q: can't be a name", parameter, name)
		}
		path = strings.ReplaceAll(path, "{"+parameter+"}", url.PathEscape(name))
	}
	if len(r.query) > 0 {
		path += "?" + r.query.Encode()
	}
	return strings.TrimSuffix(server, "/") + path, nil
}

// encode returns the HTTP request for a client.
func (r *request) encode(ctx context.Context, c *Client) (*http.Request, error) {
	target, err := r.target(c.URL)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		header.Set("Authorization", "Bearer "+c.Token)
	}
	for _, condition := range r.conditions {
		header.Set(condition.header, condition.etag)
	}
	encoded, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	encoded.Header = header
	return encoded, nil
}

// send sends a request, and returns the body of the answer and its entity tag.
func send[Answer any](ctx context.Context, c *Client, r request) (*Answer, string, error) {
	encoded, err := r.encode(ctx, c)
	if err != nil {
		return nil, "", err
	}
	sender := c.HTTP
	if sender == nil {
		sender = http.DefaultClient
	}
	response, err := sender.Do(encoded)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, "", fmt.Errorf("%s %s: %w", r.method, encoded.URL, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, "", errorOf(response, body)
	}
	answer := new(Answer)
	if response.StatusCode != http.StatusNoContent {
		if err := json.Unmarshal(body, answer); err != nil {
			return nil, "", fmt.Errorf("%s %s: %w", r.method, encoded.URL, err)
		}
	}
	return answer, response.Header.Get("ETag"), nil
}

// setQuery sets a parameter unless it is the zero value.
func setQuery[T comparable](query url.Values, name string, value T) {
	var zero T
	if value != zero {
		query.Set(name, fmt.Sprint(value))
	}
}
