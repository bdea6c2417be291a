// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"fairlead.io/fairlead/internal/dataplane/xdp/table"
)

// The balancer's constants are inlined, but for those that keep their address, most of which
// have 64 bits: secrets, which many places need.
func TestInlineConstants(t *testing.T) {
	spec, err := table.LoadBalancer()
	must(t, err)
	short, all := constantLoads(spec)
	inlineConstants(spec)
	if left, _ := constantLoads(spec); short < 100 || left*8 > short {
		t.Errorf("%d loads of constants of up to 32 bits, then %d", short, left)
	}
	if _, left := constantLoads(spec); left*4 > all {
		t.Errorf("%d loads of constants, then %d", all, left)
	}
}

// constantLoads counts the loads of constants of up to 32 bits, and of all.
func constantLoads(spec *ebpf.CollectionSpec) (short, all int) {
	long := map[uint32]bool{}
	for _, v := range spec.Variables {
		for at := v.Offset; len(v.Value) >= 8 && at < v.Offset+uint32(len(v.Value)); at++ {
			long[at] = true
		}
	}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if p.Instructions[i].Reference() != constantSection {
				continue
			}
			if all++; !long[uint32(p.Instructions[i].Constant>>32)] {
				short++
			}
		}
	}
	return short, all
}

// A jump's target stays: the address may come from elsewhere.
func TestInlineJumpTargets(t *testing.T) {
	load := func(offset int64) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapValue(asm.R1, 0, uint32(offset)).WithReference(constantSection),
			asm.LoadMem(asm.R1, asm.R1, 0, asm.Half),
		}
	}
	jump := asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.JEq), Dst: asm.R2, Offset: 5}
	all := append(append(asm.Instructions{jump}, load(0)...), load(2)...)
	inline(all, []byte{1, 0, 2, 0})
	if all[1].Reference() != "" || all[1].Constant != 1 {
		t.Errorf("%v isn't inlined", all[1])
	}
	if all[3].Reference() == "" {
		t.Errorf("%v is inlined, though %v jumps behind it", all[3], jump)
	}
}

// An address is given up only if nothing reads it again.
func TestInlineAddressUse(t *testing.T) {
	const value = 1 << 40 // doesn't fit into a copy of 32 bits
	for name, c := range map[string]struct {
		following asm.Instructions
		inlined   bool
	}{
		"overwritten":            {asm.Instructions{asm.Add.Reg(asm.R3, asm.R2), asm.Mov.Imm(asm.R1, 1)}, true},
		"loaded":                 {asm.Instructions{asm.LoadMem(asm.R1, asm.R2, 0, asm.Word)}, true},
		"another address":        {asm.Instructions{asm.LoadMapValue(asm.R1, 0, 8)}, true},
		"the end":                {nil, false},
		"added to":               {asm.Instructions{asm.Add.Imm(asm.R1, 8)}, false},
		"copied":                 {asm.Instructions{asm.Mov.Reg(asm.R3, asm.R1)}, false},
		"read through":           {asm.Instructions{asm.LoadMem(asm.R1, asm.R1, 0, asm.Word)}, false},
		"stored":                 {asm.Instructions{asm.StoreMem(asm.R10, -8, asm.R1, asm.DWord)}, false},
		"written through":        {asm.Instructions{asm.StoreImm(asm.R1, 0, 1, asm.Word)}, false},
		"jump":                   {asm.Instructions{asm.Ja.Label("x"), asm.Mov.Imm(asm.R1, 1)}, false},
		"argument of a call":     {asm.Instructions{asm.FnMapLookupElem.Call(), asm.Mov.Imm(asm.R1, 1)}, false},
		"bytes are swapped":      {asm.Instructions{asm.HostTo(asm.BE, asm.R1, asm.Word)}, false},
		"compared, then gone":    {asm.Instructions{asm.JEq.Reg(asm.R2, asm.R1, "x"), asm.Mov.Imm(asm.R1, 1)}, false},
		"read, then overwritten": {asm.Instructions{asm.Xor.Reg(asm.R2, asm.R1), asm.Mov.Imm(asm.R1, 1)}, false},
	} {
		all := append(asm.Instructions{
			asm.LoadMapValue(asm.R1, 0, 0).WithReference(constantSection),
			asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		}, c.following...)
		inline(all, binary.LittleEndian.AppendUint64(nil, value))
		if inlined := all[0].Reference() == "" && all[0].Constant == value && all[0].Dst == asm.R2; inlined != c.inlined {
			t.Errorf("%s: inlined %v, want %v", name, inlined, c.inlined)
		}
	}
}
