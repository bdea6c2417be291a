// SPDX-License-Identifier: Apache-2.0

package probe

import "context"

// tcpProber asks for a connection, and no more.
type tcpProber struct{}

func (tcpProber) probe(ctx context.Context, path way) error {
	conn, err := path.dialTCP(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}
