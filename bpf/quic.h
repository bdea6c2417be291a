/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * QUIC connections keep their server when the client's address changes: the server writes its id into
 * the connection ids that it hands out (draft-ietf-quic-load-balancers, the form without encryption).
 *
 *   connection id:  configuration (3 bits), length or random (5 bits), server id, nonce
 */
#pragma once

#include <linux/bpf.h>
#include <linux/udp.h>

#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "maps.h"
#include "parse.h"
#include "trace.h"
#include "types.h"

/* RFC 8999, section 5: of a long header, the first byte, version and length of the connection id. */
#define QUIC_LONG_HEADER 0x80
#define QUIC_LONG_LENGTH 6
#define QUIC_SHORT_LENGTH 1
#define QUIC_CONFIG_MASK 0xe0

/*
 * Where the server id begins in the frame, or 0 if the packet has no connection id of the service's
 * configuration. Clients choose the first id themselves: if it is taken for a server's, it is so for
 * all packets of that client until it has the server's.
 */
static __always_inline __u32 quic_server_id(struct xdp_md *ctx, const struct packet *p,
					    const struct quic *quic)
{
	__u32 start = packet_offset(p);
	__u32 at = start + p->header + sizeof(struct udphdr), end = start + p->length;
	__u32 length = 1 + quic->server_length + quic->nonce_length;
	__u8 head[QUIC_LONG_LENGTH + 1], config;

	if (at + sizeof(head) > end || bpf_xdp_load_bytes(ctx, at, head, sizeof(head)))
		return 0;
	if (head[0] & QUIC_LONG_HEADER) {
		if (head[QUIC_LONG_LENGTH - 1] < length)
			return 0;
		config = head[QUIC_LONG_LENGTH];
		at += QUIC_LONG_LENGTH;
	} else {
		config = head[QUIC_SHORT_LENGTH];
		at += QUIC_SHORT_LENGTH;
	}
	if ((config & QUIC_CONFIG_MASK) != quic->config || at + length > end)
		return 0;
	return at + 1;
}

/* The backend that the packet's connection id names, or NULL: then the five-tuple decides. */
static __noinline struct backend *quic_backend(struct xdp_md *ctx, const struct packet *p,
					       const struct view *view, const struct quic *quic,
					       __u32 number)
{
	struct server_key key = { .service = number };
	/* The same number, in a form whose bounds the verifier of Linux 6.1 sees. */
	__u32 length = ((quic->server_length - 1) & (sizeof(key.id) - 1)) + 1;
	__u32 at = quic_server_id(ctx, p, quic);
	struct backend *backend;
	struct server *server;
	__u32 name;

	if (!at || bpf_xdp_load_bytes(ctx, at, key.id, length))
		return NULL;
	key.length = length;
	server = bpf_map_lookup_elem(&servers, &key);
	/* An element may be used again for another key while it is read. */
	if (!server || server->service != number)
		return NULL;
	name = *(volatile __u32 *)&server->backend;
	backend = named_backend(view, name);
	if (backend)
		trace_slot(name & 0xffff, TRACE_SERVER);
	return backend;
}
