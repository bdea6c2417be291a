# SPDX-License-Identifier: Apache-2.0
"""Octavia's tree of a load balancer as documents of the LB API, one for each VIP."""

import ipaddress
from collections.abc import Callable
from typing import Any

from fairlead_octavia_provider import options
from fairlead_octavia_provider.api import MARK, Document
from fairlead_octavia_provider.flavors import Placement
from fairlead_octavia_provider.refusals import IDLE_TIMEOUTS, is_default
from fairlead_octavia_provider.tree import Part, vips

Place = Callable[[Part], Document | None]
"""Returns the fields of a member that Neutron has: mac, segment, tunnelEnd. None leaves the member out."""

_SCHEDULERS = {"ROUND_ROBIN": "wrr", "LEAST_CONNECTIONS": "wlc"}
_CHECKS = {"TCP": "tcp", "HTTP": "http", "HTTPS": "https", "UDP-CONNECT": "udp", "PING": "icmp"}


def names(tree: Part) -> list[str]:
    """Return the names of the documents: Octavia's ID, for additional VIPs with a number."""
    return [name(tree["loadbalancer_id"], at) for at, _ in enumerate(vips(tree))]


def name(load_balancer_id: str, at: int) -> str:
    """Return the name of the document of a VIP: 0 is the first one, others are the additional ones."""
    return load_balancer_id if at == 0 else f"{load_balancer_id}.{at}"


def load_balancer_of(document_name: str) -> str:
    """Return Octavia's ID of the load balancer of a document."""
    return document_name.partition(".")[0]


def documents(tree: Part, placement: Placement, segments: list[Document | None], place: Place) -> list[Document]:
    """Return the documents of a load balancer, whose VIPs are in these segments."""
    pools = [_pool(pool, placement, place) for pool in tree["pools"]]
    disabled = {p["pool_id"] for p in tree["pools"] if p.get("admin_state_up") is False}
    found = []
    for vip, segment in zip(vips(tree), segments, strict=True):
        address = canonical(vip["ip_address"])
        document: Document = {
            "forward": placement.forward,
            "address": address,
            "labels": _labels(tree, placement),
            "pools": pools,
            "listeners": [_listener(li, tree, disabled, address) for li in tree["listeners"]],
        }
        if segment is not None:
            document["segment"] = segment
        if placement.address_pool and segment is None:
            document["addressPool"] = placement.address_pool
        found.append(document)
    return found


def member_name(address: str, port: int) -> str:
    """Return the name that a member has in the LB API."""
    ip = ipaddress.ip_address(address)
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def canonical(address: str) -> str:
    """Return an address in canonical form (RFC 5952), in which the LB API wants it."""
    return str(ipaddress.ip_address(address))


def _labels(tree: Part, placement: Placement) -> Document:
    labels = {MARK: tree["loadbalancer_id"]}
    if placement.group:
        labels[options.register().group_label] = placement.group
    return labels


def _listener(listener: Part, tree: Part, disabled: set[str], address: str) -> Document:
    found: Document = {
        "name": listener["listener_id"],
        "protocol": listener["protocol"],
        "port": listener["protocol_port"],
    }
    enabled = tree.get("admin_state_up") is not False and listener.get("admin_state_up") is not False
    pool = listener.get("default_pool_id")
    if pool and pool not in disabled:
        found["pool"] = pool
    allowed = listener.get("allowed_cidrs") or []
    if allowed:
        family = ipaddress.ip_address(address).version
        networks = [ipaddress.ip_network(cidr, strict=False) for cidr in allowed]
        ranges = sorted({str(network) for network in networks if network.version == family})
        if any(network.version == family and network.prefixlen == 0 for network in networks):
            ranges = []  # all clients
        elif not ranges:
            enabled = False  # no client of this family is allowed
        if ranges:
            found["sourceRanges"] = ranges
    changed = [listener[name] for name in IDLE_TIMEOUTS if not is_default(name, listener.get(name))]
    if changed:
        found["idleTimeout"] = f"{changed[0]}ms"
    return found if enabled else {**found, "enabled": False}


def _pool(pool: Part, placement: Placement, place: Place) -> Document:
    found: Document = {"name": pool["pool_id"]}
    algorithm, persistence = pool.get("lb_algorithm"), pool.get("session_persistence") or {}
    if placement.data_plane == "ipvs" and algorithm in _SCHEDULERS:
        found["scheduler"] = _SCHEDULERS[algorithm]
    if algorithm == "SOURCE_IP" or persistence.get("type") == "SOURCE_IP":
        found["sessionAffinity"] = "ClientIP"
    # Schedulers keep a client at its member only for a time. In amphorae it is 360 seconds.
    timeout = persistence.get("persistence_timeout") or (persistence.get("type") and "scheduler" in found and 360)
    if timeout:
        found["sessionAffinityTimeout"] = f"{timeout}s"
    monitor = pool.get("healthmonitor")
    if monitor and monitor.get("admin_state_up") is not False:
        found["healthCheck"] = _check(monitor)
    icmp = monitor is not None and monitor["type"] == "PING"
    members = [_member(m, place, icmp) for m in pool["members"]]
    found["members"] = [m for m in members if m is not None]
    return found


def _member(member: Part, place: Place, icmp: bool) -> Document | None:
    located = place(member)
    if located is None:
        return None
    found: Document = {"address": canonical(member["address"]), "port": member["protocol_port"], **located}
    if member.get("weight") is not None:
        found["weight"] = member["weight"]
    if member.get("backup"):
        found["backup"] = True
    if member.get("admin_state_up") is False:
        found["enabled"] = False
    if member.get("monitor_address"):
        found["monitorAddress"] = canonical(member["monitor_address"])
    if member.get("monitor_port") and not icmp:
        found["monitorPort"] = member["monitor_port"]
    return found


def _check(monitor: Part) -> Document:
    found: Document = {
        "type": _CHECKS[monitor["type"]],
        # The LB API has no probe begin before the time-out of the last one, Octavia does.
        "interval": f"{max(monitor['delay'], monitor['timeout'])}s",
        "timeout": f"{monitor['timeout']}s",
        "rise": monitor["max_retries"],
        "fall": monitor.get("max_retries_down") or 3,
    }
    if monitor["type"] not in ("HTTP", "HTTPS"):
        return found  # clients send HTTP's fields for other types, too
    texts: dict[str, Any] = {
        "method": monitor.get("http_method"),
        "path": monitor.get("url_path"),
        "expectedCodes": monitor.get("expected_codes"),
        "host": (monitor.get("domain_name") or "").lower().rstrip("."),
    }
    # Octavia's default of expected_codes is 200; the LB API's is more.
    texts["expectedCodes"] = (texts["expectedCodes"] or "200").replace(" ", "")
    return found | {key: text for key, text in texts.items() if text}
