# SPDX-License-Identifier: Apache-2.0
"""Options that a layer-4 load balancer can't serve, refused by name. Values that mean "default" never are."""

import itertools
from typing import Any

from fairlead_octavia_provider import errors, options
from fairlead_octavia_provider.flavors import Placement
from fairlead_octavia_provider.tree import Part, using, vips

MAX_LISTENERS = MAX_POOLS = 64
MAX_MEMBERS = MAX_CIDRS = 256
"""What the LB API takes of a load balancer, a pool and a listener."""

PROTOCOLS = ("TCP", "UDP")
MONITORS = {"TCP": ("TCP", "HTTP", "HTTPS", "PING"), "UDP": ("UDP-CONNECT", "TCP", "HTTP")}
"""By the pool's protocol, as Octavia's API has them. It doesn't check those that come with a pool."""
METHODS = ("GET", "HEAD", "OPTIONS")
HASHED = ("SOURCE_IP_PORT", "SOURCE_IP")

_TLS = "TLS isn't terminated at layer 4"
_TLS_FIELDS = ("_container_", "hsts_", "tls_enabled")
_LISTENER = {
    "insert_headers": "headers are HTTP's, of which layer 4 sees nothing",
    "l7policies": "there are no layer-7 policies at layer 4",
}
_LOAD_BALANCER = {
    "vip_sg_ids": "packets to the VIP don't pass Neutron's security groups; use allowed_cidrs of listeners",
    "vip_qos_policy_id": "packets to the VIP don't pass Neutron's QoS policies",
}
# Octavia writes these defaults of its group [api_settings] into objects.
_TLS_DEFAULTS = {"tls_versions": "tls_versions", "tls_ciphers": "ciphers", "alpn_protocols": "alpn_protocols"}
# Octavia writes these defaults of its group [haproxy_amphora] into listeners.
IDLE_TIMEOUTS = ("timeout_client_data", "timeout_member_data")
_OTHER_TIMEOUTS = {
    "timeout_member_connect": (5000, "balancers make no connections to members"),
    "timeout_tcp_inspect": (0, "no content is inspected at layer 4"),
}
"""With Octavia's own default, which older listeners keep when an operator configures another one."""
# Per-address persistence, the only one, as masks and prefix lengths of both families.
_ONE_ADDRESS = ("255.255.255.255", "32", "128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")


def check(tree: Part, placement: Placement) -> None:
    """Refuse a load balancer with an option that isn't supported. Nothing has been written before."""
    _refuse(tree, _LOAD_BALANCER, "load balancer")
    _bounded(tree["listeners"], MAX_LISTENERS, "load balancer", "listeners")
    _bounded(tree["pools"], MAX_POOLS, "load balancer", "pools")
    for listener in tree["listeners"]:
        _listener(listener, placement)
    for pool in tree["pools"]:
        _pool(pool, placement)
        if not placement.rewrites_port:
            _ports(tree, pool, placement)
        if not placement.crosses_families:
            _families(tree, pool, placement)


def is_default(name: str, value: Any, group: str = "haproxy_amphora") -> bool:
    """Say whether an option has no value, or the one that Octavia is configured to give it."""
    return not value or value == options.octavia_default(group, name)


def _monitor(found: Part, protocol: str) -> None:
    """Refuse a health monitor that balancers can't run."""
    kind, kinds = found.get("type"), MONITORS[protocol]
    if kind not in kinds:
        errors.unsupported(f"health monitor: type {kind} isn't supported in {protocol} pools; {', '.join(kinds)} are")
    if kind not in ("HTTP", "HTTPS"):
        return
    if found.get("http_method") not in (None, *METHODS):
        errors.unsupported(
            f"health monitor: http_method {found['http_method']} isn't supported; {', '.join(METHODS)} are"
        )
    if found.get("http_version") not in (None, 1.1):
        errors.unsupported(f"health monitor: http_version {found['http_version']} isn't supported; 1.1 is")


def _listener(listener: Part, placement: Placement) -> None:
    what = f"listener {listener.get('protocol_port')}"
    _protocol(listener, what)
    _refuse(listener, _LISTENER, what)
    _tls(listener, what, "default_listener_")
    if listener.get("connection_limit") not in (None, -1):
        errors.unsupported(f"{what}: connection_limit isn't supported, as nodes don't count open connections; use -1")
    if listener.get("client_authentication") not in (None, "", "NONE"):
        errors.unsupported(f"{what}: client_authentication isn't supported: {_TLS}")
    for name, (default, why) in _OTHER_TIMEOUTS.items():
        if not is_default(name, listener.get(name)) and listener[name] != default:
            errors.unsupported(f"{what}: {name} isn't supported: {why}")
    changed = {listener[name] for name in IDLE_TIMEOUTS if not is_default(name, listener.get(name))}
    if len(changed) > 1:
        errors.unsupported(
            f"{what}: timeout_client_data and timeout_member_data differ, but a flow has one idle time-out"
        )
    allowed = listener.get("allowed_cidrs") or []
    _bounded(allowed, MAX_CIDRS, what, "allowed_cidrs")
    if placement.data_plane == "ipvs":
        if any(not cidr.endswith("/0") for cidr in allowed):
            errors.unsupported(f"{what}: allowed_cidrs aren't supported with data_plane ipvs, which serves all clients")
        if changed:
            errors.unsupported(
                f"{what}: {', '.join(IDLE_TIMEOUTS)} aren't supported with data_plane ipvs, whose nodes have their own"
            )


def _pool(pool: Part, placement: Placement) -> None:
    what = f"pool {pool.get('name') or pool.get('pool_id')}"
    _protocol(pool, what)
    _tls(pool, what, "default_pool_")
    _algorithm(pool.get("lb_algorithm"), placement, what)
    _persistence(pool.get("session_persistence") or {}, what)
    _bounded(pool["members"], MAX_MEMBERS, what, "members")
    for member in pool["members"]:
        if member.get("vnic_type") not in (None, "", "normal"):
            errors.unsupported(f"member {member['address']}: vnic_type {member['vnic_type']} (SR-IOV) isn't supported")
    if pool.get("healthmonitor"):
        _monitor(pool["healthmonitor"], pool["protocol"])


def _algorithm(name: Any, placement: Placement, what: str) -> None:
    if name in (None, *HASHED) or placement.data_plane == "ipvs":
        return
    if name == "ROUND_ROBIN" and options.register().round_robin_as_hash:
        return
    errors.unsupported(
        f"{what}: lb_algorithm {name} isn't supported here; use SOURCE_IP_PORT or SOURCE_IP, "
        "or a flavor with data_plane ipvs"
    )


def _persistence(persistence: Part, what: str) -> None:
    kind = persistence.get("type")
    if kind not in (None, "SOURCE_IP"):
        errors.unsupported(f"{what}: session_persistence {kind} isn't supported; SOURCE_IP is")
    granularity = persistence.get("persistence_granularity")
    if granularity and str(granularity) not in _ONE_ADDRESS:
        errors.unsupported(
            f"{what}: session_persistence: persistence_granularity {granularity} isn't supported, only one address is"
        )


def _ports(tree: Part, pool: Part, placement: Placement) -> None:
    """Refuse members with another port than a listener of their pool, where packets arrive unchanged."""
    for listener in using(tree, pool["pool_id"]):
        for member in pool["members"]:
            if member["protocol_port"] != listener["protocol_port"]:
                errors.unsupported(
                    f"member {member['address']}: protocol_port {member['protocol_port']} differs from the listener's "
                    f"{listener['protocol_port']}, which the mode {placement.forward} can't change; use a flavor with "
                    "forward nat"
                )


def _families(tree: Part, pool: Part, placement: Placement) -> None:
    """Refuse members of another IP family than a VIP, where packets keep theirs."""
    mode = f"forward {placement.forward} with data_plane {placement.data_plane}"
    for vip, member in itertools.product(vips(tree), pool["members"]):
        if (":" in member["address"]) != (":" in vip["ip_address"]):
            errors.unsupported(
                f"member {member['address']}: VIP {vip['ip_address']} is of another IP family, which {mode} can't "
                "reach; use a flavor with forward ipip or gue"
            )


def _protocol(found: Part, what: str) -> None:
    if found.get("protocol") not in PROTOCOLS:
        errors.unsupported(f"{what}: protocol {found.get('protocol')} isn't supported at layer 4; TCP and UDP are")


def _refuse(found: Part, options_refused: dict[str, str], what: str) -> None:
    for name, why in options_refused.items():
        if found.get(name):
            errors.unsupported(f"{what}: {name} isn't supported: {why}")


def _tls(found: Part, what: str, prefix: str) -> None:
    """Refuse all options of TLS but the defaults that Octavia writes."""
    for name, value in found.items():
        if value and any(field in name for field in _TLS_FIELDS):
            errors.unsupported(f"{what}: {name} isn't supported: {_TLS}")
    for name, option in _TLS_DEFAULTS.items():
        if not is_default(prefix + option, found.get(name), "api_settings"):
            errors.unsupported(f"{what}: {name} isn't supported: {_TLS}")


def _bounded(parts: list[Any], most: int, what: str, name: str) -> None:
    if len(parts) > most:
        errors.unsupported(f"{what}: {len(parts)} {name} are more than {most}, the most that are supported")
