// SPDX-License-Identifier: Apache-2.0

package file

import "fairlead.io/fairlead/internal/lb"

// quic reads the form of QUIC connection ids. The bounds that depend on each
// other are lb's to say.
func quic(to **lb.QUIC) reader {
	return func(v value) {
		q := &lb.QUIC{}
		v.readFields(
			optional("configID", number(&q.ConfigID, 0, lb.MaxQUICConfig)),
			required("serverIDLength", number(&q.ServerIDLength, 1, lb.MaxServerIDLength)),
			required("nonceLength", number(&q.NonceLength, 0, 255)),
		)
		*to = q
	}
}
