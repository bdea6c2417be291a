// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// maxBody is the part of a response's body that is examined, maxAnswer the most
// that is read, with its head and chunk framing; in bytes.
const (
	maxBody   = 64 << 10
	maxAnswer = 8 * maxBody
)

// httpProber sends one request over a connection of its own. An http.Client
// would do more than is asked for: keep connections, follow redirects.
type httpProber struct {
	method string
	url    *url.URL
	host   string // empty: the target
	header http.Header
	status lb.StatusSet
	body   *regexp.Regexp // nil: any
	tls    *tls.Config    // nil: none
}

func newHTTPProber(check *lb.HealthCheck) (*httpProber, error) {
	target, err := url.ParseRequestURI(check.Path)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	p := &httpProber{method: check.Method.String(), url: target, host: check.Host, header: http.Header{}, status: check.Status}
	if len(p.status) == 0 {
		p.status = lb.DefaultStatus()
	}
	p.header.Set("User-Agent", "fairlead")
	p.header.Set("Accept", "*/*")
	for name, value := range check.Headers {
		p.header.Set(name, value)
	}
	if check.Body != "" {
		if p.body, err = regexp.Compile(check.Body); err != nil {
			return nil, err
		}
	}
	if check.Type == lb.HealthHTTPS {
		p.tls, err = tlsConfig(check, "http/1.1")
	}
	return p, err
}

func (p *httpProber) probe(ctx context.Context, path way) error {
	plain, err := path.dialTCP(ctx)
	if err != nil {
		return err
	}
	defer plain.Close()
	defer until(ctx, plain)()
	conn := net.Conn(plain)
	if p.tls != nil {
		secure := tls.Client(plain, named(p.tls, path))
		if err := secure.Handshake(); err != nil {
			return handshakeError(err)
		}
		conn = secure
	}
	request := p.request(path)
	if err := request.Write(conn); err != nil {
		return err
	}
	limited := io.LimitReader(conn, maxAnswer)
	resp, err := http.ReadResponse(bufio.NewReader(limited), request)
	if err != nil {
		return answerError(err)
	}
	defer resp.Body.Close()
	err = p.judge(resp)
	awaitEnd(plain)
	return err
}

// ending is how long a server may take to close a connection after its answer, as
// it was asked to.
const ending = 20 * time.Millisecond

// awaitEnd reads until the server has closed the connection. If its last segment
// met a closed socket the kernel would refuse it, by a packet without the socket's
// mark, as it reaches any server that has the VIP.
func awaitEnd(conn net.Conn) {
	if conn.SetReadDeadline(time.Now().Add(ending)) == nil {
		_, _ = io.CopyN(io.Discard, conn, maxAnswer)
	}
}

func (p *httpProber) request(path way) *http.Request {
	return &http.Request{
		Method: p.method, URL: p.url, Host: cmp.Or(p.host, p.defaultHost(path)),
		Header: p.header, Close: true, ProtoMajor: 1, ProtoMinor: 1,
	}
}

// defaultHost is the target, with its port if that isn't the scheme's own (RFC
// 9110 §7.2).
func (p *httpProber) defaultHost(path way) string {
	standard := ":80"
	if p.tls != nil {
		standard = ":443"
	}
	return strings.TrimSuffix(path.Target.String(), standard)
}

func (p *httpProber) judge(resp *http.Response) error {
	if !p.status.Contains(resp.StatusCode) {
		return fmt.Errorf("status %d, want %s", resp.StatusCode, p.status)
	}
	if p.body == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return answerError(err)
	}
	if !p.body.Match(body) {
		return errors.New("body doesn't match")
	}
	return nil
}

// answerError explains a malformed response. It leaves out the server's text, which
// may be anything.
func answerError(err error) error {
	var network net.Error
	switch {
	case errors.As(err, &network):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("connection closed without a whole answer")
	}
	return errors.New("not an HTTP answer")
}
