// SPDX-License-Identifier: Apache-2.0

// Package reflector runs a route reflector as a process: it follows the configuration file, and shows the
// reflector on a control socket and over HTTP. The command "reflector" calls it.
package reflector

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.io/fairlead/internal/bgp/reflector"
	"fairlead.io/fairlead/internal/config"
	"fairlead.io/fairlead/internal/control"
	"fairlead.io/fairlead/internal/observe"
	"fairlead.io/fairlead/internal/observe/web"
	"fairlead.io/fairlead/internal/version"
)

// Run runs a route reflector with a configuration file until ctx ends. It
// is shown as an agent is, on a control socket and over HTTP.
func Run(ctx context.Context, path, socket string, log *slog.Logger) (err error) {
	started := time.Now()
	settings, err := config.Open(path, log, config.ParseReflector)
	if err != nil {
		return err
	}
	claim, err := control.ClaimSocket(socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Release()) }()
	page, err := web.Listen(settings.Config().Observe.Listen, settings.Config().Observe.Explicit, nil, log)
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Close() // in case it isn't served
	}
	core, err := reflector.Start(ctx, settings.Config().BGP, reflector.Options{ClientFile: socket + ".clients", Log: log})
	if err != nil {
		return err
	}
	defer func() {
		core.Close()
		log.Info("reflector stopped, routers keep their routes for their restart time")
	}()
	listener, err := claim.Listen()
	if err != nil {
		return err
	}
	shown := observe.Reflector{
		Version:     version.Version,
		Commit:      version.Commit(),
		Name:        settings.Config().Name,
		Started:     started,
		Listen:      web.Address(page),
		Config:      settings.State,
		Routes:      func() observe.Routes { return reflectedRoutes(core, settings.Config()) },
		ClientsBack: core.Ready,
		Refused:     core.Refused,
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return settings.Run(ctx, func(next *config.Reflector) error { return core.Configure(next.BGP) })
	})
	group.Go(func() error { return control.ServeReflector(ctx, listener, shown, settings.Reload, log) })
	group.Go(func() error {
		control.ReloadOnHangup(ctx, settings.Reload)
		return nil
	})
	if page != nil {
		group.Go(func() error { return web.ServeReflector(ctx, page, shown, log) })
	}
	return group.Wait()
}

// reflectedRoutes describes the routes that a reflector passes on, and to which routers.
func reflectedRoutes(core *reflector.Reflector, conf *config.Reflector) observe.Routes {
	shown := observe.Routes{Enabled: true, ASN: conf.BGP.ASN, RouterID: conf.BGP.RouterID, Peers: core.Peers()}
	peers := observe.Established(shown.Peers)
	for _, route := range core.Routes() {
		shown.Announcements = append(shown.Announcements, observe.Announcement{
			Prefix: route.Prefix, NextHop: route.NextHop, From: route.Clients, Announced: true, Since: route.Since,
			Peers: peers, GracefulShutdown: route.Attributes.GracefulShutdown, Attributes: observe.Attributes(&route.Attributes),
		})
	}
	return shown
}
