// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/binary"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// constantSection is where compilers put `const volatile` variables.
const constantSection = ".rodata"

// inlineConstants replaces loads of constants by their values. The verifier knows these
// and removes branches that aren't taken, but it leaves the loads: some 20 in the path of
// a packet. Instructions keep their length, as jumps have distances. A load becomes a copy of
// a register to itself: with a jump to the next instruction the verifier, which compares
// states at jumps, needs more than its million steps.
func inlineConstants(spec *ebpf.CollectionSpec) {
	var constants []byte
	for _, v := range spec.Variables {
		if v.SectionName != constantSection {
			continue
		}
		if missing := int(v.Offset) + len(v.Value) - len(constants); missing > 0 {
			constants = append(constants, make([]byte, missing)...)
		}
		copy(constants[v.Offset:], v.Value)
	}
	for _, p := range spec.Programs {
		inline(p.Instructions, constants)
	}
}

func inline(all asm.Instructions, constants []byte) {
	targets := jumpTargets(all)
	for it := all.Iterate(); it.Next(); {
		if it.Index+1 == len(all) || it.Ins.Reference() != constantSection || !it.Ins.OpCode.IsDWordLoad() {
			continue
		}
		load := &all[it.Index+1]
		at := int(it.Ins.Constant>>32) + int(load.Offset)
		size := load.OpCode.Size().Sizeof()
		if load.OpCode.Class() != asm.LdXClass || load.OpCode.Mode() != asm.MemMode || load.Src != it.Ins.Dst ||
			targets[it.Offset+2] || it.Ins.Symbol() != "" || at+size > len(constants) {
			continue
		}
		var word [8]byte
		copy(word[:], constants[at:at+size])
		value := int64(binary.LittleEndian.Uint64(word[:]))
		switch source := load.Source(); {
		case load.Dst == load.Src || overwritten(all[it.Index+2:], load.Src):
			all[it.Index] = asm.LoadImm(load.Dst, value, asm.DWord).WithSource(it.Ins.Source())
			*load = asm.Mov.Reg(load.Dst, load.Dst).WithSource(source)
		case value >= 0 && value <= math.MaxInt32: // the address may be read again
			*load = asm.Mov.Imm(load.Dst, int32(value)).WithSource(source)
		}
	}
}

// overwritten says that a register is written before it is read, and before anything jumps.
func overwritten(following asm.Instructions, register asm.Register) bool {
	for _, ins := range following {
		op := ins.OpCode
		switch class := op.Class(); {
		case class.IsALU():
			if op.Source() == asm.RegSource && ins.Src == register {
				return false
			}
			if ins.Dst == register {
				return op.ALUOp() == asm.Mov
			}
		case class == asm.LdXClass:
			if ins.Src == register {
				return false
			}
			if ins.Dst == register {
				return true
			}
		case op.IsDWordLoad():
			if ins.Dst == register {
				return true
			}
		case class.IsStore():
			if ins.Dst == register || ins.Src == register {
				return false
			}
		default:
			return false
		}
	}
	return false
}

// jumpTargets are the instructions to which others jump, by their distance from the first.
func jumpTargets(all asm.Instructions) map[asm.RawInstructionOffset]bool {
	targets := map[asm.RawInstructionOffset]bool{}
	for it := all.Iterate(); it.Next(); {
		class, op := it.Ins.OpCode.Class(), it.Ins.OpCode.JumpOp()
		switch {
		case !class.IsJump() || op == asm.Call || op == asm.Exit:
		case class == asm.Jump32Class && op == asm.Ja:
			targets[asm.RawInstructionOffset(int64(it.Offset)+1+it.Ins.Constant)] = true
		default:
			targets[asm.RawInstructionOffset(int64(it.Offset)+1+int64(it.Ins.Offset))] = true
		}
	}
	return targets
}
