// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"errors"
	"os"

	"fairlead.io/fairlead/internal/lb"
)

// maxDatagram is how much of an answer is looked at, in bytes.
const maxDatagram = 4 << 10

// udpProber sends one datagram.
type udpProber struct {
	send   []byte
	expect []byte // empty: anything, and silence
}

func newUDPProber(check *lb.HealthCheck) (*udpProber, error) {
	send, err := check.Send.Bytes()
	if err != nil {
		return nil, err
	}
	expect, err := check.Expect.Bytes()
	return &udpProber{send: send, expect: expect}, err
}

func (p *udpProber) probe(ctx context.Context, path way) error {
	conn, err := path.dialUDP(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer until(ctx, conn)()
	if _, err := conn.Write(p.send); err != nil {
		return err
	}
	answer := make([]byte, maxDatagram)
	n, err := conn.Read(answer)
	switch {
	case len(p.expect) == 0 && errors.Is(err, os.ErrDeadlineExceeded):
		return nil // nobody said that the port is closed
	case err != nil:
		return err
	case !bytes.Contains(answer[:n], p.expect):
		return errors.New("answer doesn't match")
	}
	return nil
}
