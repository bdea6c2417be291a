// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Makes a load inside the kernel, for measurements. `transmit` runs with live frames and puts them
 * on a wire; `front` stands before a program that is measured alone.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "load.h"

#define MIX_LARGE 1510
#define MIX_MEDIUM 570
#define MIX_SMALL 64

/* Internet mix: of 12 frames 7 are small, 4 medium and 1 is large, well stirred. */
static __always_inline __u32 mixed_size(void)
{
	__u32 place = sequence * 7 % 12;

	if (place < 7)
		return MIX_SMALL;
	return place < 11 ? MIX_MEDIUM : MIX_LARGE;
}

/* Each frame comes with its full size, whatever became of the one before. */
SEC("xdp")
int transmit(struct xdp_md *ctx)
{
	__u32 size = load.size;

	mark_time();
	if (!size) {
		size = mixed_size();
		if (bpf_xdp_adjust_tail(ctx, (int)size - MIX_LARGE))
			return XDP_ABORTED;
	}
	if (write_packet(ctx, next_flow(), size))
		return XDP_ABORTED;
	return bpf_redirect(load.ifindex, 0);
}

/* The program under test. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} behind SEC(".maps");

/*
 * Each run gets the frame as the last one left it. Its start is moved also if it needn't be, so
 * that the front costs the same before every program.
 */
SEC("xdp")
int front(struct xdp_md *ctx)
{
	__s64 length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	/* clang would subtract 32 bits, which the verifier refuses for pointers. */
	barrier_var(length);
	mark_time();
	if (bpf_xdp_adjust_head(ctx, (int)length - load.size))
		return XDP_ABORTED;
	if (write_packet(ctx, next_flow(), load.size))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &behind, 0);
	return XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
