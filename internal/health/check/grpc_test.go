// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"fairlead.io/fairlead/internal/lb"
)

// grpcServer has a service that is well and one that isn't.
func grpcServer(t *testing.T, options ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(options...)
	status := grpchealth.NewServer()
	status.SetServingStatus("shop.Cart", grpc_health_v1.HealthCheckResponse_SERVING)
	status.SetServingStatus("shop.Mail", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(server, status)
	return serveGRPC(t, server)
}

func serveGRPC(t *testing.T, server *grpc.Server) string {
	t.Helper()
	listener := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return listener.Addr().String()
}

func grpcCheck(service string, config *lb.HealthTLS) lb.HealthCheck {
	return lb.HealthCheck{Type: lb.HealthGRPC, Service: service, TLS: config}
}

func TestGRPC(t *testing.T) {
	expectReasons(t, grpcServer(t), map[string]reasonTest{
		"server":      {grpcCheck("", nil), ""},
		"service":     {grpcCheck("shop.Cart", nil), ""},
		"not serving": {grpcCheck("shop.Mail", nil), "status NOT_SERVING"},
		"unknown":     {grpcCheck("shop.Wine", nil), "server doesn't know the service"},
		"no tls":      {grpcCheck("", &lb.HealthTLS{}), "not a TLS server"},
	})
	wantReason(t, grpcCheck("", nil), serveGRPC(t, grpc.NewServer()), "server has no health service")
	wantReason(t, grpcCheck("", nil), closedPort(t), "connection refused")
	slow := grpcCheck("", nil)
	slow.Timeout = 50 * time.Millisecond
	wantReason(t, slow, silent(t), "timed out after 50ms")
	site := httptest.NewServer(website())
	defer site.Close()
	wantReason(t, grpcCheck("", nil), site.Listener.Addr().(*net.TCPAddr).String(), "not a gRPC server, or connection closed")
}

func TestGRPCOverTLS(t *testing.T) {
	// The certificate of net/http/httptest is for example.com and 127.0.0.1.
	site := httptest.NewTLSServer(nil)
	defer site.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}))
	server := grpcServer(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: site.TLS.Certificates})))
	expectReasons(t, server, map[string]reasonTest{
		"unverified":        {grpcCheck("shop.Cart", &lb.HealthTLS{}), ""},
		"address":           {grpcCheck("shop.Cart", &lb.HealthTLS{Verify: true, CA: ca}), ""},
		"name":              {grpcCheck("shop.Cart", &lb.HealthTLS{Verify: true, CA: ca, ServerName: "example.com"}), ""},
		"another name":      {grpcCheck("shop.Cart", &lb.HealthTLS{Verify: true, CA: ca, ServerName: "other.example"}), "certificate is not for other.example"},
		"unknown authority": {grpcCheck("shop.Cart", &lb.HealthTLS{Verify: true}), "certificate is signed by an unknown authority"},
	})
}
