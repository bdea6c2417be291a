// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

func TestLoads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	for _, length := range []uint32{0, 14} {
		p, err := loadReplyProgram(Config{}, length)
		if e, ok := errors.AsType[*ebpf.VerifierError](err); ok {
			t.Fatalf("%-30v", e)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
}
