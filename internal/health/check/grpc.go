// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"fairlead.io/fairlead/internal/lb"
)

// grpcProber calls grpc.health.v1.Health/Check over a connection of its own.
type grpcProber struct {
	service string
	// credentials are for a server at the end of a path.
	credentials func(way) credentials.TransportCredentials
}

func newGRPCProber(check *lb.HealthCheck) (*grpcProber, error) {
	p := &grpcProber{service: check.Service}
	if check.TLS == nil {
		p.credentials = func(way) credentials.TransportCredentials { return insecure.NewCredentials() }
		return p, nil
	}
	config, err := tlsConfig(check, "h2")
	p.credentials = func(path way) credentials.TransportCredentials { return credentials.NewTLS(named(config, path)) }
	return p, err
}

func (p *grpcProber) probe(ctx context.Context, path way) error {
	var failed atomic.Pointer[error]
	client, err := grpc.NewClient("passthrough:///"+path.Target.String(),
		grpc.WithUserAgent("fairlead"), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithTransportCredentials(recordingCreds{p.credentials(path), &failed}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := path.dialTCP(ctx)
			if err != nil {
				failed.Store(&err)
				return nil, err
			}
			return conn, nil
		}))
	if err != nil {
		return err
	}
	defer client.Close()
	answer, err := grpc_health_v1.NewHealthClient(client).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: p.service})
	if cause := failed.Load(); err != nil && cause != nil {
		return *cause
	}
	return judgeGRPC(answer, err)
}

func judgeGRPC(answer *grpc_health_v1.HealthCheckResponse, err error) error {
	switch code := status.Code(err); code {
	case codes.OK:
	case codes.DeadlineExceeded, codes.Canceled:
		return context.DeadlineExceeded
	case codes.Unimplemented:
		return errors.New("server has no health service")
	case codes.NotFound:
		return errors.New("server doesn't know the service")
	case codes.Unavailable:
		return errors.New("not a gRPC server, or connection closed")
	default:
		return fmt.Errorf("gRPC error %s", code)
	}
	if answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("status %s", answer.GetStatus())
	}
	return nil
}

// recordingCreds remembers why a handshake failed, which gRPC reports only in a long text.
type recordingCreds struct {
	credentials.TransportCredentials
	failed *atomic.Pointer[error]
}

// ClientHandshake calls the credentials' handshake.
func (w recordingCreds) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		cause := handshakeError(err)
		w.failed.Store(&cause)
	}
	return secure, info, err
}
