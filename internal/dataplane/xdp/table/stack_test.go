// SPDX-License-Identifier: Apache-2.0

package table

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// stackDepths are the bytes of stack of each function, in the verifier's log.
var stackDepths = regexp.MustCompile(`stack depth ([0-9+]+)`)

// stackFrames are the functions of a program.
type stackFrames struct {
	bytes map[string]int
	calls map[string]map[string]bool
}

// readFrames loads a program with all features on tables.
func readFrames(t *testing.T, spec *ebpf.CollectionSpec, program string, tables map[string]*ebpf.Map) stackFrames {
	t.Helper()
	s := stackFrames{map[string]int{}, map[string]map[string]bool{}}
	var functions []string
	for _, in := range spec.Programs[program].Instructions {
		if name := in.Symbol(); name != "" {
			functions = append(functions, name)
			s.calls[name] = map[string]bool{}
		}
		if in.IsFunctionCall() {
			s.calls[functions[len(functions)-1]][in.Reference()] = true
		}
	}
	spec = spec.Copy()
	options, err := Use(tables, spec)
	must(t, err)
	options.Programs.LogLevel = ebpf.LogLevelStats
	all, err := ebpf.NewCollectionWithOptions(spec, *options)
	must(t, err)
	defer all.Close()
	found := stackDepths.FindStringSubmatch(all.Programs[program].VerifierLog)
	if found == nil {
		t.Fatal("the verifier reports no stack depths")
	}
	depths := strings.Split(found[1], "+")
	if len(depths) != len(functions) {
		t.Fatalf("%d stack depths of %d functions", len(depths), len(functions))
	}
	for i, depth := range depths {
		if s.bytes[functions[i]], err = strconv.Atoi(depth); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// deepest returns the stack of the deepest chain of calls from a function, and the chain. Linux 6.1
// rounds each frame up to 32 bytes, later ones to 16 (check_max_stack_depth in kernel/bpf/verifier.c).
func (s stackFrames) deepest(function string) (bytes int, chain string) {
	for callee := range s.calls[function] {
		if n, c := s.deepest(callee); n > bytes {
			bytes, chain = n, c
		}
	}
	return bytes + (max(s.bytes[function], 1)+31)/32*32, function + " " + chain
}

// All programs fit the stack of Linux 6.1 with all features, whatever kernel this is.
func TestStackDepth(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	const limit = 512 // MAX_BPF_STACK
	objects, err := filepath.Glob("../*/*_bpfel.o")
	if err != nil || len(objects) < 5 {
		t.Fatalf("objects %v, error %v", objects, err)
	}
	tables := openTables(t, Capacity{})
	for _, object := range objects {
		spec, err := ebpf.LoadCollectionSpec(object)
		must(t, err)
		for _, m := range spec.Maps {
			m.Pinning = ebpf.PinNone
		}
		for program := range spec.Programs {
			if bytes, chain := readFrames(t, spec, program, tables.ByName).deepest(program); bytes > limit {
				t.Errorf("%s: %d bytes of stack, want at most %d: %s", object, bytes, limit, chain)
			}
		}
	}
}
