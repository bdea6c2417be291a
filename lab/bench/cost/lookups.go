// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"fairlead.io/fairlead/lab/bench"
)

// array is a table of a layout: its elements, and the bytes of each.
type array struct{ elements, size uint32 }

// layout has the tables that one packet reads: an element of each table, chosen by its
// hash. The places in the tables of a step follow from the elements of the step before.
type layout [][]array

// parseLayout reads for example "16384x32>65536x64,65536x16": one look-up, then two that
// depend on it and not on each other.
func parseLayout(text string) (l layout, err error) {
	for step := range strings.SplitSeq(text, ">") {
		var tables []array
		for name := range strings.SplitSeq(step, ",") {
			elements, size, found := strings.Cut(name, "x")
			n, errN := strconv.ParseUint(elements, 10, 31)
			bytes, errBytes := strconv.ParseUint(size, 10, 31)
			if !found || errors.Join(errN, errBytes) != nil || n == 0 || bytes < 4 {
				return nil, fmt.Errorf("layout %q: table %q: want elements x bytes, of 4 bytes at least, such as 65536x64", text, name)
			}
			tables = append(tables, array{uint32(n), uint32(bytes)})
		}
		l = append(l, tables)
	}
	return l, nil
}

// Lookups measures bare look-ups, to try layouts of tables before they are built: each is
// a text such as "16384x32>65536x64,65536x16", tables of elements x bytes, of which those
// behind a ">" are read when those before it have been. The cost of a program that
// reads nothing is subtracted.
func Lookups(ctx context.Context, cfg bench.Config, layouts []string) (*bench.Report, error) {
	rounds, packets := 5, 1<<20
	if cfg.Quick {
		rounds, packets = 3, 1<<18
	}
	const nothing = "nothing"
	all := bench.Group[float64]{Name: "layouts", Rounds: rounds, Cells: []bench.Cell[float64]{layout{}.cell(nothing, packets)}}
	for _, text := range layouts {
		l, err := parseLayout(text)
		if err != nil {
			return nil, err
		}
		all.Cells = append(all.Cells, l.cell(text, packets))
	}
	return bench.Run(ctx, cfg, bench.Bench[float64]{
		Name: "lookups", Groups: []bench.Group[float64]{all},
		Report: func(r *bench.Report, found bench.Found[float64]) error {
			for _, text := range layouts {
				r.Add("lookup_cost", "ns/packet", bench.Runs(found[text]).Minus(found[nothing]), map[string]string{"layout": text})
			}
			return nil
		},
	})
}

// cell measures the nanoseconds of a packet in the program of a layout.
func (l layout) cell(name string, packets int) bench.Cell[float64] {
	var program *ebpf.Program
	return bench.Cell[float64]{
		Name: name, Reference: len(l) == 0,
		Stage: bench.Stage{
			Setup:  func(context.Context) (err error) { program, err = l.load(); return err },
			Remove: func(context.Context) error { return program.Close() },
		},
		Measure: func(context.Context) (perPacket float64, err error) {
			err = bench.OnProcessor(func() error {
				_, each, err := program.Benchmark(make([]byte, frameSize), packets, nil)
				perPacket = float64(each.Nanoseconds())
				return err
			})
			return perPacket, err
		},
	}
}

// load loads a program that makes the look-ups of a layout, whose tables go with it. A
// packet begins with the elements of the one before: a processor would else read for
// several of so short a program at once.
func (l layout) load() (program *ebpf.Program, err error) {
	const hash, known, read, before, odd = asm.R6, asm.R7, asm.R8, asm.R9, 0x5851f42d
	memory, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	code := asm.Instructions{
		asm.LoadMapValue(before, memory.FD(), 0), asm.LoadMem(known, before, 0, asm.DWord),
		asm.FnGetPrandomU32.Call(), asm.Mov.Reg(hash, asm.R0),
	}
	for _, step := range l {
		code = append(code, asm.Mov.Imm(read, 0))
		for _, a := range step {
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: a.size, MaxEntries: a.elements, Flags: unix.BPF_F_MMAPABLE})
			if err != nil {
				return nil, fmt.Errorf("table %dx%d: %w", a.elements, a.size, err)
			}
			defer m.Close()
			code = append(code,
				asm.Mul.Imm(hash, odd), asm.Mov.Reg(asm.R1, hash), asm.Add.Reg(asm.R1, known),
				asm.Mov.Reg32(asm.R1, asm.R1), asm.Mul.Imm(asm.R1, int32(a.elements)), asm.RSh.Imm(asm.R1, 32), // a fraction of the table
				asm.StoreMem(asm.R10, -4, asm.R1, asm.Word),
				asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4),
				asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "end"),
				asm.LoadMem(asm.R0, asm.R0, 0, asm.Word), asm.Add.Reg(read, asm.R0))
		}
		code = append(code, asm.Mov.Reg(known, read))
	}
	code = append(code, asm.StoreMem(before, 0, known, asm.DWord), asm.Mov.Imm(asm.R0, 1).WithSymbol("end"), asm.Return())
	program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lookups", Type: ebpf.XDP, Instructions: code, License: "Dual BSD/GPL"})
	if err != nil {
		return nil, fmt.Errorf("program of %v: %w", l, err)
	}
	return program, nil
}
