// SPDX-License-Identifier: Apache-2.0

package netlab

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// filter loads a host's rules of nftables. They go with its namespace.
func (b *builder) filter(host *Host) error {
	if host.Rules == "" {
		return nil
	}
	var said bytes.Buffer
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin, nft.Stdout, nft.Stderr = strings.NewReader(host.Rules), &said, &said
	// A child is born in the namespace of the thread that forks it.
	if err := b.namespace(host.Name).do(nft.Start); err != nil {
		return fmt.Errorf("nft: %w", err)
	}
	if err := nft.Wait(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
