// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"math"
)

// Kind is the data plane that a node asks for.
type Kind string

// The data planes. KindAuto is XDP where preflight allows it.
const (
	KindAuto Kind = "auto"
	KindXDP  Kind = "xdp"
	kindIPVS Kind = "ipvs"
)

// XDPMode is where in the kernel XDP programs run.
type XDPMode string

// The modes. XDPAuto is native where the interface's driver can, else generic.
const (
	XDPAuto    XDPMode = "auto"
	XDPNative  XDPMode = "native"
	XDPGeneric XDPMode = "generic"
)

// Dataplane says what moves packets on the node. A running agent can't change
// it.
type Dataplane struct {
	Kind    Kind
	XDPMode XDPMode
	// HashSeed keys the choice of backends. All nodes that share VIPs need the
	// same one, or a flow that moves between nodes moves between backends.
	HashSeed uint64
	// Flows is how many flows can be recorded at once, of all services together.
	Flows int
	// NATSessions is how many flows of services with mode nat there can be at
	// once.
	NATSessions int
}

// Bounds of Dataplane.Flows, of which a record takes about 100 bytes, and of
// Dataplane.NATSessions, of which one takes about 300.
const (
	minFlows     = 1 << 10
	maxFlows     = 1 << 24
	defaultFlows = 1 << 18
)

func (p *Dataplane) read(v value) {
	v.readFields(
		optional("kind", checked(oneOf(&p.Kind, KindAuto, KindXDP, kindIPVS), func() error {
			if p.Kind == kindIPVS {
				return errors.New("ipvs can't be served by this version: want auto or xdp")
			}
			return nil
		})),
		optional("xdpMode", oneOf(&p.XDPMode, XDPAuto, XDPNative, XDPGeneric)),
		optional("hashSeed", number(&p.HashSeed, 0, math.MaxUint64)),
		optional("flows", number(&p.Flows, minFlows, maxFlows)),
		optional("natSessions", number(&p.NATSessions, minFlows, maxFlows)),
	)
}
