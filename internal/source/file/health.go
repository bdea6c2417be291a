// SPDX-License-Identifier: Apache-2.0

package file

import (
	"math"
	"time"

	"fairlead.io/fairlead/internal/lb"
)

// health reads a health check. This version runs none.
func health(to **lb.HealthCheck) reader {
	return func(v value) {
		v.warn("health checks are not run by this version: the backends of every service are taken as healthy")
		h := &lb.HealthCheck{Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
		v.readFields(
			required("type", word(&h.Type)),
			optional("path", text(&h.Path)),
			optional("interval", duration(&h.Interval)),
			optional("timeout", duration(&h.Timeout)),
			optional("rise", number(&h.Rise, 1, math.MaxUint16)),
			optional("fall", number(&h.Fall, 1, math.MaxUint16)),
		)
		if h.Type == lb.HealthHTTP && h.Path == "" {
			h.Path = "/"
		}
		*to = h
	}
}
