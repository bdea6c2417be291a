// SPDX-License-Identifier: Apache-2.0

// Package gobgp adapts github.com/osrg/gobgp, which speaks BGP (RFC 4271), to
// the words of package bgp. Nobody else imports that library.
package gobgp

import (
	"context"
	"log/slog"
	"net"

	"github.com/osrg/gobgp/v4/pkg/server"

	"fairlead.io/fairlead/internal/bgp"
)

// Server is a BGP speaker without peers.
type Server struct {
	bgp    *server.BgpServer
	accept chan<- net.Conn
}

// Start starts a speaker that listens nowhere.
func Start(ctx context.Context, local bgp.Local, log *slog.Logger) (*Server, error) {
	lib, accept, err := launch(ctx, local, log)
	if err != nil {
		return nil, err
	}
	return &Server{bgp: lib, accept: accept}, nil
}

// Close ends all sessions.
func (s *Server) Close() { s.bgp.Stop() }
