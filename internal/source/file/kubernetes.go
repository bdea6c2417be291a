// SPDX-License-Identifier: Apache-2.0

package file

import (
	"github.com/goccy/go-yaml/ast"

	"fairlead.io/fairlead/internal/bgp"
)

// interfacesAuto is the word for the interface that has the node's address.
const interfacesAuto = "auto"

// ParseKubernetes reads the file of a node of a Kubernetes cluster: what is the
// node's own to say. Its name, its services, and to whom VIPs are announced, come
// from the cluster; Node.Interfaces is empty for those that the agent finds itself,
// and BGP.RouterID invalid for the node's address. A file may be empty.
func ParseKubernetes(name string, data []byte) (*Config, error) {
	d := &decoder{file: name}
	if empty(data) {
		var c Config
		c.setDefaults()
		c.Node.setDefaults()
		return &c, nil
	}
	return parse(d, data, readKubernetes)
}

// empty reports whether a file has nothing but blanks and comments.
func empty(data []byte) bool {
	comment := false
	for _, b := range data {
		switch {
		case b == '\n':
			comment = false
		case b == '#':
			comment = true
		case !comment && b != ' ' && b != '\r' && b != '\t':
			return false
		}
	}
	return true
}

func readKubernetes(v value, c *Config) {
	c.setDefaults()
	c.Node.setDefaults()
	v.readFields(
		optional("node", c.Node.readKubernetes),
		optional("dataplane", c.Dataplane.read),
		optional("observe", c.Observe.read),
		optional("bgp", localSpeaker(&c.BGP)),
		optional("services", elsewhere("with --kubernetes services are the cluster's Services")),
	)
}

// elsewhere refuses a field, and says where its content comes from.
func elsewhere(where string) reader {
	return func(v value) { v.failf("not here: %s", where) }
}

func (n *Node) readKubernetes(v value) {
	v.readFields(append(n.common(),
		optional("name", elsewhere("with --kubernetes the node's name is that of its Node, see --node-name")),
		optional("interfaces", func(v value) {
			if word, ok := v.node.(*ast.StringNode); ok && word.Value == interfacesAuto {
				return
			}
			n.readInterfaces(v)
		}),
	)...)
}

// localSpeaker reads what the node itself is as a BGP speaker.
func localSpeaker(to **bgp.Config) reader {
	return func(v value) {
		c := &bgp.Config{ShutdownDelay: defaultShutdownDelay}
		v.readFields(
			required("asn", number(&c.ASN, 1, bgp.MaxASN)),
			optional("routerID", identifier(&c.RouterID, "router id")),
			shutdownDelay(c),
			optional("peers", elsewhere("with --kubernetes peers are the cluster's BGPPeers")),
			optional("announce", elsewhere("with --kubernetes AddressPools say how their addresses are announced")),
		)
		*to = c
	}
}
