// SPDX-License-Identifier: Apache-2.0

package health

import "context"

// tcpProber asks for a connection, and no more.
type tcpProber struct{}

func (tcpProber) probe(ctx context.Context, path Path) error {
	conn, err := path.dialTCP(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}
