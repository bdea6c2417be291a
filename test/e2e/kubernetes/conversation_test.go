// SPDX-License-Identifier: Apache-2.0

package kubernetes_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"fairlead.io/fairlead/test/cluster"
)

var (
	errPaused = errors.New("the pause is over")
	// errClosed is the end of a connection as it should be, by the server and
	// between two requests.
	errClosed = errors.New("closed by the server")
)

// conversation is a client's with nginx, which answers with the name of its pod.
type conversation struct {
	conn    net.Conn
	answers *bufio.Reader
	// pod is who answered; empty before.
	pod string
}

func newConversation(conn net.Conn) *conversation {
	return &conversation{conn: conn, answers: bufio.NewReader(conn)}
}

// ask sends one request and reads the answer, which has to come from the same pod as
// the first. The error is errClosed if the server says that it was the last.
func (c *conversation) ask() error {
	if err := c.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	pod := strings.TrimSpace(string(text))
	switch {
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("status %s", response.Status)
	case c.pod != "" && c.pod != pod:
		return fmt.Errorf("pod %s answered after %s", pod, c.pod)
	}
	c.pod = pod
	if response.Close {
		return errClosed
	}
	return nil
}

// idle waits before the next request. The error is errClosed if the server ends the
// connection meanwhile.
func (c *conversation) idle(pace time.Duration) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(pace)); err != nil {
		return err
	}
	_, err := c.answers.Peek(1)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err == io.EOF:
		return errClosed
	case err == nil:
		return errors.New("an answer to no question")
	}
	return err
}

// visitOnce asks once, where the thread is.
func visitOnce(address string) error {
	conn, err := net.DialTimeout("tcp", address, answerTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := newConversation(conn).ask(); err != nil && !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// fetch asks nginx once from a machine, and returns the pod that answered.
func fetch(ctx context.Context, from *cluster.Machine, address netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", address.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	c := newConversation(conn)
	err = c.ask()
	return c.pod, err
}
