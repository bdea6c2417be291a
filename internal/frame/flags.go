// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gopacket/gopacket/layers"
)

// Flags are the control bits of TCP (RFC 9293, section 3.1). As text they are
// names with commas between them, such as "syn,ack".
type Flags uint8

// The flags, in the order in which they are written.
const (
	FIN Flags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

var flagNames = [...]string{"fin", "syn", "rst", "psh", "ack", "urg"}

// String names the flags that are set.
func (f Flags) String() string {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Set parses String's output, in any order.
func (f *Flags) Set(text string) error {
	*f = 0
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(flagNames[:], name)
		if i < 0 {
			return fmt.Errorf("flag %q: want some of %s", name, strings.Join(flagNames[:], ","))
		}
		*f |= 1 << i
	}
	return nil
}

// Type names the value in a command's help.
func (f *Flags) Type() string { return "flags" }

// header is a TCP header with the flags.
func (f Flags) header() *layers.TCP {
	return &layers.TCP{
		FIN: f&FIN != 0, SYN: f&SYN != 0, RST: f&RST != 0,
		PSH: f&PSH != 0, ACK: f&ACK != 0, URG: f&URG != 0,
		Window: 65535,
	}
}

func flagsOf(tcp *layers.TCP) Flags {
	var f Flags
	for i, set := range [...]bool{tcp.FIN, tcp.SYN, tcp.RST, tcp.PSH, tcp.ACK, tcp.URG} {
		if set {
			f |= 1 << i
		}
	}
	return f
}
