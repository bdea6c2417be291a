// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"strconv"
	"strings"
)

// Community is a standard community (RFC 1997): "65021:100".
type Community uint32

// GracefulShutdown marks routes that will go (RFC 8326 §5).
const GracefulShutdown Community = 65535 << 16

// String writes it as routers do.
func (c Community) String() string { return fmt.Sprintf("%d:%d", c>>16, c&0xffff) }

// LargeCommunity is a large community (RFC 8092): "65021:1:2".
type LargeCommunity [3]uint32

// String writes it as routers do.
func (c LargeCommunity) String() string { return fmt.Sprintf("%d:%d:%d", c[0], c[1], c[2]) }

// ParseCommunity reads two numbers of 16 bits.
func ParseCommunity(text string) (Community, error) {
	parts, ok := numbers(text, 2, 16)
	if !ok {
		return 0, fmt.Errorf("bad community %q: want two numbers up to 65535, as 65021:100", text)
	}
	return Community(parts[0]<<16 | parts[1]), nil
}

// ParseLargeCommunity reads three numbers of 32 bits.
func ParseLargeCommunity(text string) (LargeCommunity, error) {
	parts, ok := numbers(text, 3, 32)
	if !ok {
		return LargeCommunity{}, fmt.Errorf("bad large community %q: want three numbers up to 4294967295, as 65021:1:2", text)
	}
	return LargeCommunity(parts), nil
}

// numbers reads count decimal numbers with colons between them.
func numbers(text string, count, bits int) ([]uint32, bool) {
	fields := strings.Split(text, ":")
	if len(fields) != count {
		return nil, false
	}
	parts := make([]uint32, count)
	for i, field := range fields {
		n, err := strconv.ParseUint(field, 10, bits)
		if err != nil {
			return nil, false
		}
		parts[i] = uint32(n)
	}
	return parts, true
}
