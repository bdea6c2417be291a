// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/bgp"
	"fairlead.io/fairlead/internal/bgp/reflector"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/metric"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/source/file"
)

// reflectorProcess is a route reflector with what shows it.
type reflectorProcess struct {
	source *file.Source[*file.Reflector]
	core   *reflector.Reflector
	server *observe.ReflectorServer
	web    *web.Reflector
	// page is where scrapers are answered; nil: nowhere.
	page net.Listener
	log  *slog.Logger
}

func newReflectorProcess(
	started time.Time, source *file.Source[*file.Reflector], core *reflector.Reflector, page net.Listener, log *slog.Logger,
) *reflectorProcess {
	r := &reflectorProcess{source: source, core: core, page: page, log: log}
	shown := observe.Reflector{
		Version: version,
		Commit:  commit(),
		Name:    source.Config().Name,
		Started: started,
		Listen:  pageAddress(page),
		Config:  func() observe.Config { return shownConfig(source.State()) },
		Routes:  r.routes,
		Begun:   core.Begun,
		Refused: core.Refused,
		Reload:  source.Reload,
	}
	r.server = observe.NewReflectorServer(shown, log)
	r.web = &web.Reflector{Reflector: shown, Metrics: metric.ReflectorHandler(shown, log), Log: log}
	return r
}

// run shows the reflector and follows its file until ctx ends or something fails.
func (r *reflectorProcess) run(ctx context.Context, claim *observe.Claim) error {
	socket, err := claim.Listen()
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.source.Run(ctx, r.apply) })
	group.Go(func() error { return r.server.Serve(ctx, socket) })
	group.Go(func() error {
		reloadAt(ctx, hangup, r.source.Reload)
		return nil
	})
	if r.page != nil {
		group.Go(func() error { return r.web.Serve(ctx, r.page) })
	}
	return group.Wait()
}

func (r *reflectorProcess) apply(config *file.Reflector) error { return r.core.Configure(config.BGP) }

// routes tells observe what is passed on, and to whom.
func (r *reflectorProcess) routes() observe.Routes {
	config := r.source.Config().BGP
	shown := observe.Routes{Enabled: true, ASN: config.ASN, RouterID: config.RouterID, Peers: r.core.Peers()}
	var told []netip.Addr
	for _, p := range shown.Peers {
		if !p.Dynamic && p.State == bgp.Established {
			told = append(told, p.Address)
		}
	}
	for _, route := range r.core.Routes() {
		shown.Announcements = append(shown.Announcements, observe.Announcement{
			Prefix: route.Prefix, NextHop: route.NextHop, From: route.Clients, Announced: true, Since: route.Since,
			Peers: told, Attributes: route.Attributes,
		})
	}
	return shown
}
