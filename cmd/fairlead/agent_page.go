// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"fairlead.io/fairlead/internal/source/file"
)

// listenPage opens the address of the status page; nil is none. Who names an
// address relies on it. The default one may be taken: balancing goes before.
func listenPage(o file.Observe, log *slog.Logger) (net.Listener, error) {
	if !o.Listen.IsValid() {
		return nil, nil
	}
	listener, err := net.Listen("tcp", o.Listen.String())
	if err == nil {
		log.Info("status page", "url", "http://"+listener.Addr().String()+"/")
		return listener, nil
	}
	if cause, ok := errors.AsType[*net.OpError](err); ok {
		err = cause.Err // the rest repeats the address
	}
	if o.Chosen {
		return nil, fmt.Errorf("observe.listen %s: %w", o.Listen, err)
	}
	log.Warn("no status page and no metrics: set observe.listen", "address", o.Listen.String(), "error", err)
	return nil, nil
}

// servePage shows the agent until ctx ends. A page that breaks ends no agent.
func (a *agent) servePage(ctx context.Context) {
	if a.page == nil {
		return
	}
	if err := a.web.Serve(ctx, a.page); err != nil {
		a.log.Error("status page lost", "error", err)
	}
}

// pageAddress is where the page is; empty without one.
func pageAddress(page net.Listener) string {
	if page == nil {
		return ""
	}
	return page.Addr().String()
}
