// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Captured is a packet of a capture file.
type Captured struct {
	Time time.Time
	// Frame is as it was on the wire. Bytes that the capture left out at its end
	// (see tcpdump's -s) are zero.
	Frame []byte
}

// Capture reads a capture file.
type Capture struct {
	next func() ([]byte, gopacket.CaptureInfo, error)
	link func(gopacket.CaptureInfo) (layers.LinkType, error)
}

// The first bytes of a pcapng file: the type of a section header block
// (draft-ietf-opsawg-pcapng, section 4.1).
const sectionHeader = 0x0a0d0d0a

// NewCapture reads a capture in pcap or pcapng format.
func NewCapture(r io.Reader) (*Capture, error) {
	file := bufio.NewReader(r)
	magic, err := file.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	if binary.BigEndian.Uint32(magic) == sectionHeader {
		ng, err := pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
		if err != nil {
			return nil, fmt.Errorf("pcapng capture: %w", err)
		}
		return &Capture{next: ng.ReadPacketData, link: func(info gopacket.CaptureInfo) (layers.LinkType, error) {
			from, err := ng.Interface(info.InterfaceIndex)
			return from.LinkType, err
		}}, nil
	}
	pcap, err := pcapgo.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("pcap capture: %w", err)
	}
	pcap.SetSnaplen(0) // some writers get it wrong
	return &Capture{next: pcap.ReadPacketData, link: func(gopacket.CaptureInfo) (layers.LinkType, error) {
		return pcap.LinkType(), nil
	}}, nil
}

// Next returns the next packet; io.EOF if there is none.
func (c *Capture) Next() (Captured, error) {
	data, info, err := c.next()
	if err != nil {
		return Captured{}, err
	}
	link, err := c.link(info)
	if err != nil {
		return Captured{}, err
	}
	if missing := info.Length - len(data); missing > 0 && missing <= 0xffff {
		data = append(slices.Clip(data), make([]byte, missing)...)
	}
	frame, err := ethernet(link, data)
	return Captured{Time: info.Timestamp, Frame: frame}, err
}

// Link types of captures that have no Ethernet header (LINKTYPE_ values of
// tcpdump.org's registry).
const (
	linkRawBSD    layers.LinkType = 12  // gopacket's LinkTypeRaw on some systems
	linkRaw       layers.LinkType = 101 // begins with the IP header
	linkLinuxSLL  layers.LinkType = 113 // tcpdump -i any
	linkLinuxSLL2 layers.LinkType = 276 // the same since libpcap 1.10
)

// ethernet replaces a capture's link-layer header by an Ethernet header.
func ethernet(link layers.LinkType, data []byte) ([]byte, error) {
	header := make([]byte, 0, 14+len(data))
	header = append(append(header, receiver...), sender...)
	switch {
	case link == layers.LinkTypeEthernet:
		return data, nil
	case (link == linkRaw || link == linkRawBSD) && len(data) > 0:
		kind := layers.EthernetTypeIPv4
		if data[0]>>4 == 6 {
			kind = layers.EthernetTypeIPv6
		}
		return append(binary.BigEndian.AppendUint16(header, uint16(kind)), data...), nil
	case link == linkLinuxSLL && len(data) >= 16:
		return append(append(header, data[14:16]...), data[16:]...), nil
	case link == linkLinuxSLL2 && len(data) >= 20:
		return append(append(header, data[0:2]...), data[20:]...), nil
	}
	return nil, fmt.Errorf("packet of %d bytes with link type %s (%d): no frame can be made of it", len(data), link, link)
}
