/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Exits. Every packet leaves the program through exactly one exit, which counts it. The agent takes
 * the names from BTF: COUNTER_PASS_NOT_IP is shown as pass_not_ip.
 */
#pragma once

/*
 * Ordered by verdict (exit_default). The comments are the text of `fairlead trace` and of
 * docs/reference/exits.md, which are generated: each is one line and completes "dropped: ...".
 */
enum counter {
	/* Passed to the kernel */
	COUNTER_PASS_NOT_IP, /* neither IPv4 nor IPv6 */
	COUNTER_PASS_VLAN_STACKED, /* several VLAN tags, a service tag (802.1ad), or a tag inside a segment */
	COUNTER_PASS_TRUNCATED, /* the packet ends within a header */
	COUNTER_PASS_MALFORMED, /* the packet's headers contradict each other */
	COUNTER_PASS_FRAGMENT, /* a later IP fragment whose first fragment has not been seen, or to an address that has no service */
	COUNTER_PASS_EXTENSION_HEADER, /* too many IPv6 extension headers */
	COUNTER_PASS_NOT_TCP_UDP, /* neither TCP nor UDP, nor ICMP about a flow */
	COUNTER_PASS_NOT_TUNNEL_PEER, /* VXLAN or Geneve to a tunnel end point of this node, from a host that is not in tunnelPeers */
	COUNTER_PASS_OVERLAY, /* VXLAN or Geneve without an identifier, a control packet, or critical options */
	COUNTER_PASS_NOT_VIP, /* no service at the destination */
	COUNTER_PASS_FROM_PEER, /* a peer has balanced the packet and sent it to this node */
	COUNTER_PASS_OTHER_HOST, /* the frame is for another host, as a switch floods frames for unknown hosts */
	/* Dropped */
	COUNTER_DROP_NO_BACKEND, /* the service has no usable backend */
	COUNTER_DROP_FRAGMENT, /* a later IP fragment whose first fragment has not been seen */
	COUNTER_DROP_TOO_BIG, /* larger than the MTU towards the backend, tunnel header included */
	COUNTER_DROP_HEADROOM, /* no room in front of the frame for another header */
	COUNTER_DROP_LOOP, /* the next hop is the host that sent the frame */
	COUNTER_DROP_ANSWER_LIMIT, /* the rate limit of answers, of look-ups at peers, or of ICMP errors for servers, is exceeded */
	COUNTER_DROP_SOURCE_DENIED, /* the client is not allowed to use the service, or its address is not one of a host */
	COUNTER_DROP_SOURCE_LIMIT, /* the client's limit of new flows is exceeded */
	COUNTER_DROP_SERVICE_LIMIT, /* the service's limit of new flows is exceeded */
	COUNTER_DROP_NO_SESSION, /* a packet of an unknown connection that can't be answered with a reset */
	COUNTER_DROP_NO_NAT_PORT, /* no port of this node is free for another session with the backend */
	COUNTER_DROP_UNSERVED, /* the address is announced, but no service takes the packet, and the kernel would route it back */
	COUNTER_DROP_CONGESTED, /* a tunnel's packet with a congestion mark, whose sender does not understand marks (RFC 6040) */
	COUNTER_DROP_TTL, /* TTL or hop limit exceeded */
	COUNTER_DROP_INTERNAL_ERROR, /* the tables contradict each other: a defect of Fairlead */
	/* Forwarded */
	COUNTER_FORWARD_L2DSR, /* to the backend, with new link-layer addresses */
	COUNTER_FORWARD_IPIP, /* to the backend, in an IP tunnel */
	COUNTER_FORWARD_GUE, /* to the backend, in Generic UDP Encapsulation */
	COUNTER_FORWARD_VXLAN, /* to the backend's tunnel endpoint, in VXLAN */
	COUNTER_FORWARD_GENEVE, /* to the backend's tunnel endpoint, in Geneve */
	COUNTER_FORWARD_NAT, /* to the backend, with the addresses and ports of the NAT session */
	COUNTER_FORWARD_NAT_HANDOVER, /* to the backend, as forward_nat, but through the kernel */
	COUNTER_FORWARD_RELAY, /* to the backend's node, unchanged except for the hop limit */
	COUNTER_FORWARD_LOCAL, /* to the kernel of this node, which is the backend */
	COUNTER_FORWARD_LOOKUP, /* to the next peer, which may know the connection */
	COUNTER_FORWARD_NAT_REPLY, /* from a backend to its client, with the VIP as the source */
	/* Answered by the balancer */
	COUNTER_ANSWER_ECHO, /* an ICMP echo reply: a service at the address has a usable backend */
	COUNTER_ANSWER_TOO_BIG, /* an ICMP error with the MTU towards the backend */
	COUNTER_ANSWER_UNREACHABLE, /* an ICMP error: the service has no usable backend */
	COUNTER_ANSWER_RESET, /* a TCP reset: no usable backend, or an unknown connection */
	COUNTER_COUNT,
};

/* In place of an exit: the packet stays in the program, and the caller handles it further. */
#define CONTINUE COUNTER_COUNT
