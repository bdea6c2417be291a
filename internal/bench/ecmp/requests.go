// SPDX-License-Identifier: Apache-2.0

package ecmp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// requestClients ask all the time, each on a connection of its own.
	requestClients = 96
	// requestSize is that of a request in bytes: most of a segment, as it is what
	// passes through the balancers.
	requestSize = 1024
	// requestPatience is how long an answer may take.
	requestPatience = 5 * time.Second
)

// requests is a load of HTTP requests: every client sends the next one when it
// has been answered.
type requests struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	answered atomic.Int64
	// failed counts connections that broke.
	failed  atomic.Int64
	clients sync.WaitGroup
	end     context.CancelFunc
}

// startRequests has clients ask all targets, evenly, until stop.
func startRequests(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), targets []netip.AddrPort) *requests {
	r := &requests{dial: dial}
	ctx, r.end = context.WithCancel(ctx)
	for n := range requestClients {
		target := targets[n%len(targets)]
		r.clients.Go(func() {
			for ctx.Err() == nil {
				if err := r.ask(ctx, target); err != nil && ctx.Err() == nil {
					r.failed.Add(1)
				}
			}
		})
	}
	return r
}

func (r *requests) stop() {
	r.end()
	r.clients.Wait()
}

// ask asks on one connection until ctx ends or the connection breaks.
func (r *requests) ask(ctx context.Context, target netip.AddrPort) error {
	connecting, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	conn, err := r.dial(connecting, "tcp", target.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	request, answers := requestTo(target), bufio.NewReader(conn)
	for ctx.Err() == nil {
		if err := conn.SetDeadline(time.Now().Add(requestPatience)); err != nil {
			return err
		}
		if _, err := conn.Write(request); err != nil {
			return err
		}
		if err := readAnswer(answers); err != nil {
			return err
		}
		r.answered.Add(1)
	}
	return nil
}

// requestTo is a request of requestSize.
func requestTo(target netip.AddrPort) []byte {
	head := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nX-Padding: ", target)
	const end = "\r\n\r\n"
	return []byte(head + strings.Repeat("x", requestSize-len(head)-len(end)) + end)
}

func readAnswer(answers *bufio.Reader) error {
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
