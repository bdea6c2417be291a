//go:build guest

// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.io/fairlead/internal/lb"
	"fairlead.io/fairlead/lab/netlab"
)

// Ports of the servers.
const (
	webPort  = 80
	echoPort = 7
)

// ports are those of the services, by protocol.
func ports() map[lb.Protocol]uint16 { return map[lb.Protocol]uint16{lb.TCP: webPort, lb.UDP: echoPort} }

// client is the host that asks.
const client = "client"

// Sizes of requests in bytes: a body that takes several full packets, and a
// datagram that nearly fills one.
const (
	bodySize     = 20_000
	datagramSize = 1_400
)

// serve makes a host answer HTTP requests and datagrams for the VIPs with its
// name. It returns when the servers listen.
func serve(t *testing.T, lab *netlab.Lab, host string, vips ...netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var addresses []netip.AddrPort
	for _, v := range vips {
		addresses = append(addresses, netip.AddrPortFrom(v, echoPort))
	}
	var listener net.Listener
	within(t, lab, host, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", webPort))
		return err
	})
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %d", host, n)
	})}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()
	go func() { ended <- lab.Do(host, func() error { return netlab.Echo(ctx, host, addresses) }) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(server.Close(), <-ended, <-ended); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("host %s: %v", host, err)
		}
	})
}

// ask sends one request from the client, by a new flow, and returns the name of
// the host that answers.
func ask(ctx context.Context, lab *netlab.Lab, vip lb.VIP) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	target := netip.AddrPortFrom(vip.Address, vip.Port).String()
	if vip.Protocol == lb.UDP {
		return askEcho(ctx, lab, target)
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return lab.Dial(ctx, client, network, address)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+target+"/", bytes.NewReader(make([]byte, bodySize)))
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	name, size, _ := strings.Cut(string(body), " ")
	if err == nil && size != fmt.Sprint(bodySize) {
		err = fmt.Errorf("answer %q to %d bytes", body, bodySize)
	}
	return name, err
}

func askEcho(ctx context.Context, lab *netlab.Lab, target string) (string, error) {
	conn, err := lab.Dial(ctx, client, "udp", target)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	payload := bytes.Repeat([]byte{'p'}, datagramSize)
	if _, err := conn.Write(payload); err != nil {
		return "", err
	}
	answer := make([]byte, 2*datagramSize)
	n, err := conn.Read(answer)
	name, echo, _ := bytes.Cut(answer[:n], []byte(" "))
	if err == nil && !bytes.Equal(echo, payload) {
		err = fmt.Errorf("%d bytes of echo are not what was sent", len(echo))
	}
	return string(name), err
}

// reach fails the test unless requests are answered, every one of them, until
// each of the hosts has answered.
func reach(t *testing.T, lab *netlab.Lab, vip lb.VIP, hosts ...string) {
	t.Helper()
	const enough, tooMany = 8, 64
	heard := map[string]bool{}
	for n := 0; n < enough || len(heard) < len(hosts); n++ {
		name, err := ask(t.Context(), lab, vip)
		if err != nil {
			t.Fatalf("request %d to %s: %v", n, vip, err)
		}
		if !slices.Contains(hosts, name) {
			t.Fatalf("request %d to %s: answered by %q", n, vip, name)
		}
		heard[name] = true
		if n == tooMany {
			t.Fatalf("%d requests to %s: answered only by %v", n, vip, heard)
		}
	}
}

// eventually fails the test if a condition doesn't come true. Packets that end
// a connection may come after its answer.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	late := time.After(patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Fatal(err)
		}
	}
}
