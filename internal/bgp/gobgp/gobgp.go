// SPDX-License-Identifier: Apache-2.0

// Package gobgp adapts github.com/osrg/gobgp, which speaks BGP (RFC 4271), to
// the words of package bgp. Nobody else imports that library.
package gobgp

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"

	"fairlead.io/fairlead/internal/bgp"
)

// Server is a BGP speaker without peers.
type Server struct {
	bgp *server.BgpServer
}

// Start starts a speaker that listens nowhere.
func Start(ctx context.Context, local bgp.Local, log *slog.Logger) (*Server, error) {
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	s := server.NewBgpServer(server.LoggerOption(log, level))
	go s.Serve()
	err := s.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: local.ASN, RouterId: local.RouterID.String(), ListenPort: -1,
	}})
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("bgp: %w", err)
	}
	return &Server{bgp: s}, nil
}

// Close ends all sessions.
func (s *Server) Close() { s.bgp.Stop() }
