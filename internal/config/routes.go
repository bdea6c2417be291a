// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Routes is how routes to VIPs are made without BGP: by a program. It can't be changed while
// the agent runs.
type Routes struct {
	// Hook is the absolute path of the program (package routehook), Timeout how long one of
	// its calls may take, Interval the time after which a route is added again.
	Hook              string
	Timeout, Interval time.Duration
}

// Defaults and bounds of Routes.Timeout and Routes.Interval: clouds change routes within seconds.
const (
	defaultHookTimeout  = 15 * time.Second
	defaultHookInterval = 30 * time.Second
	minHookTime         = time.Second
	maxHookTimeout      = 5 * time.Minute
	maxHookInterval     = time.Hour
)

func readRoutes(v value, r *Routes) {
	r.Timeout, r.Interval = defaultHookTimeout, defaultHookInterval
	v.readFields(
		required("hook", &r.Hook, program),
		optional("timeout", &r.Timeout, durationWithin(minHookTime, maxHookTimeout)),
		optional("interval", &r.Interval, durationWithin(minHookTime, maxHookInterval)),
	)
}

// program reads the absolute path of a program. The agent runs without it, so its absence is a
// warning.
func program(v value, to *string) {
	checked(text, func(path string) error {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return fmt.Errorf("bad path %q: want an absolute one", path)
		}
		return nil
	})(v, to)
	if v.failed[v.path] {
		return
	}
	info, err := os.Stat(*to)
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err // the rest repeats the path
	}
	switch {
	case err != nil:
		v.warn(fmt.Sprintf("%s: %s", *to, err))
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		v.warn(*to + " is not an executable file")
	}
}

// checkRoutes rejects a hook together with BGP.
func (c *Config) checkRoutes(v value) {
	if c.Routes != nil && c.BGP != nil {
		v.at("routes").failf("not with bgp, which announces the routes to VIPs: want one of them")
	}
}

// hook returns the identity of the hook.
func (c *Config) hook() string {
	if c.Routes == nil {
		return "absent"
	}
	return fmt.Sprintf("hook %s with timeout %s and interval %s", c.Routes.Hook, c.Routes.Timeout, c.Routes.Interval)
}
