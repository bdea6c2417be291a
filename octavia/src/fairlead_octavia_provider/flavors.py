# SPDX-License-Identifier: Apache-2.0
"""Flavors and availability zones: they choose the group of nodes, the forwarding mode and the data plane."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead_octavia_provider import errors, options

FLAVOR = {
    "group": "Group of balancers, the value of the label by which LoadBalancerGroups select load balancers.",
    "forward": "Forwarding mode: " + ", ".join(options.FORWARDING_MODES) + ".",
    "data_plane": "Data plane of the group's nodes: xdp, or ipvs for ROUND_ROBIN and LEAST_CONNECTIONS.",
    "address_pool": "Address pool of the LB API that VIPs have to be in. The default is any.",
}
"""Keys of flavors, with their descriptions."""

ZONE = {key: FLAVOR[key] for key in ("group", "address_pool")}
"""Keys of availability zones."""

_IPVS_MODES = ("l2dsr", "ipip", "gue", "nat")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Placement:
    """Where and how a load balancer is served."""

    forward: str
    data_plane: str
    group: str = ""
    address_pool: str = ""

    @property
    def rewrites_port(self) -> bool:
        """Say whether a member may have another port than the listener."""
        return self.forward == "nat"

    @property
    def addresses_frames(self) -> bool:
        """Say whether members have MAC addresses and segments: the others are reached by the routes of nodes."""
        return self.data_plane == "xdp" and self.forward in ("l2dsr", "vxlan", "geneve")

    @property
    def crosses_families(self) -> bool:
        """Say whether a VIP of one IP family may have members of the other one."""
        return self.forward in ("ipip", "gue") or self.addresses_frames


def validate_flavor(metadata: dict[str, Any]) -> None:
    """Refuse unknown keys and values of a flavor, and combinations that no node can serve."""
    _check(metadata, FLAVOR, "flavor")
    mode = _mode(metadata)
    if mode["data_plane"] == "ipvs" and mode["forward"] not in _IPVS_MODES:
        errors.unsupported(f"flavor: data_plane ipvs has no forward {mode['forward']}, but {', '.join(_IPVS_MODES)}")


def validate_zone(metadata: dict[str, Any]) -> None:
    """Refuse unknown keys and values of an availability zone."""
    _check(metadata, ZONE, "availability zone")


def place(flavor: Any, zone: Any) -> Placement:
    """Return the placement by a flavor and a zone, either of which may be absent."""
    flavor, zone = flavor or {}, zone or {}
    validate_flavor(flavor)
    validate_zone(zone)
    chosen = {}
    for key in ZONE:
        values = {metadata[key] for metadata in (flavor, zone) if metadata.get(key)}
        if len(values) > 1:
            errors.unsupported(f"{key}: the flavor has {flavor[key]!r}, the availability zone {zone[key]!r}")
        chosen[key] = values.pop() if values else ""
    return Placement(**_mode(flavor), **chosen)


def _mode(flavor: dict[str, Any]) -> dict[str, str]:
    conf = options.register()
    return {key: flavor.get(key) or conf[key] for key in ("forward", "data_plane")}


def _check(metadata: dict[str, Any], known: dict[str, str], what: str) -> None:
    unknown = sorted(set(metadata) - set(known))
    if unknown:
        errors.unsupported(f"{what}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    valid: dict[str, Callable[[str], Any]] = {
        "forward": options.FORWARDING_MODES.__contains__,
        "data_plane": options.DATA_PLANES.__contains__,
        "group": _LABEL.fullmatch,
        "address_pool": lambda name: len(name) <= 253,
    }
    for key, value in metadata.items():
        if not isinstance(value, str) or not value or not valid[key](value):
            errors.unsupported(f"{what}: {key} {value!r} isn't valid. {known[key]}")
