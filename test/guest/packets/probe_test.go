//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/internal/health"
	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// probes are services that a balancer, whose host is named, has programmed, with
// the hosts of each one's backends. Probes come last in a test: the balancer counts
// their answers, which are for its own address, as no service's.
type probes struct {
	balancer
	host  string
	hosts map[*lb.Service][]string
}

// check fails the test unless each backend's probe, which is a connection to the
// VIP, is answered by its host.
func (p probes) check(t *testing.T, lab *netlab.Lab) {
	for svc, hosts := range p.hosts {
		for i, backend := range svc.Backends {
			if svc.Protocol != lb.TCP {
				continue
			}
			within(t, lab, p.host, func() error {
				path, release, err := p.Open(svc, backend, svc.Port)
				if err != nil {
					return err
				}
				defer release()
				name, err := askAlong(path)
				if err != nil || name != hosts[i] {
					return fmt.Errorf("probe of backend %s of %s: answered by %q (%w), want %s", backend.ID(), svc.VIP, name, err, hosts[i])
				}
				return nil
			})
		}
	}
}

// askAlong sends a request along a path and returns the name of the host that
// answers.
func askAlong(path health.Path) (string, error) {
	dialer := net.Dialer{
		Timeout:   patience,
		LocalAddr: &net.TCPAddr{IP: path.Source.AsSlice()},
		Control: func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(path.Mark))
			})
			return errors.Join(err, failed)
		},
	}
	conn, err := dialer.Dial("tcp", path.Target.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	name, _, _ := strings.Cut(body, " ")
	return name, err
}
