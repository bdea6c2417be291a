// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Payload is the content of a datagram, with Go's escapes for what is not text:
// \n, \r, \t, \\, \x00 and so on.
type Payload string

// maxPayload fits into one packet on any network (RFC 8200 §5).
const maxPayload = 1200

// Bytes returns the content itself.
func (p Payload) Bytes() ([]byte, error) {
	var content []byte
	for rest := string(p); rest != ""; {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, 0)
		if err != nil {
			return nil, fmt.Errorf(`bad escape in %q: want for example \n, \\ or \x00`, string(p))
		}
		if multibyte {
			content = utf8.AppendRune(content, r)
		} else {
			content = append(content, byte(r))
		}
		rest = tail
	}
	return content, nil
}

func (p Payload) check() error {
	content, err := p.Bytes()
	if err == nil && len(content) > maxPayload {
		err = fmt.Errorf("%d bytes are too many: want at most %d", len(content), maxPayload)
	}
	return err
}
