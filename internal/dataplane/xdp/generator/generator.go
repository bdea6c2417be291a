// SPDX-License-Identifier: Apache-2.0

// Package generator makes the packets of many flows inside the kernel, as fast
// as one processor can: on a wire (Sender), or in front of a program that is
// measured alone (Front).
//
// It is used by internal/bench. Its programs are in bpf/generator.bpf.c, and
// bpf/load.h says what a packet looks like.
package generator

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" generator ../../../../bpf/generator.bpf.c
