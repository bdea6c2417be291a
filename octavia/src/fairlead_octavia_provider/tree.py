# SPDX-License-Identifier: Apache-2.0
"""Octavia's tree of a load balancer as plain dictionaries, and changes of it that aren't committed yet."""

import os
from collections.abc import Iterator
from typing import Any

from octavia_lib.api.drivers import data_models, driver_lib
from octavia_lib.api.drivers import exceptions as lib

from fairlead_octavia_provider import errors, options

Part = dict[str, Any]

SOCKETS = ("status", "stats", "get")


def library() -> driver_lib.DriverLibrary:
    """Return the client of the driver agent, or fail at once: octavia-lib waits minutes for missing sockets."""
    paths = {}
    for name in SOCKETS:
        default = getattr(driver_lib, f"DEFAULT_{name.upper()}_SOCKET")
        path = options.octavia_default("driver_agent", f"{name}_socket_path") or default
        if not os.path.exists(path):
            errors.failed(f"octavia-driver-agent isn't running here: {path} is missing")
        paths[f"{name}_socket"] = path
    return driver_lib.DriverLibrary(**paths)


def load(load_balancer_id: str) -> Part | None:
    """Return the committed tree of a load balancer; None if Octavia has none."""
    try:
        return tree(library().get_loadbalancer(load_balancer_id))
    except (lib.DriverAgentTimeout, lib.DriverAgentNotFound) as error:
        return errors.failed(f"octavia-driver-agent: {error.fault_string}")


def owner(pool_id: str) -> str:
    """Return the ID of a pool's load balancer."""
    pool = library().get_pool(pool_id)
    if pool is None:
        errors.failed(f"pool {pool_id}: Octavia has no such pool")
    return str(pool.loadbalancer_id)


def plain(value: Any) -> Any:
    """Return an object of octavia-lib without its unset fields, as dictionaries and lists."""
    if isinstance(value, data_models.BaseDataModel):
        value = vars(value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if not isinstance(v, data_models.UnsetType)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def tree(load_balancer: Any) -> Part | None:
    """Return a load balancer whose pools are all in "pools", whether a listener or only the load balancer has them."""
    if load_balancer is None:
        return None
    found: Part = plain(load_balancer)
    found["listeners"] = found.get("listeners") or []
    pools = {p["pool_id"]: p for p in found.get("pools") or []}
    for listener in found["listeners"]:
        pool = listener.pop("default_pool", None)
        if pool and pool.get("pool_id"):
            pools.setdefault(pool["pool_id"], pool)
            listener["default_pool_id"] = pool["pool_id"]
    found["pools"] = list(pools.values())
    for pool in found["pools"]:
        pool["members"] = pool.get("members") or []
    return found


def part(parts: list[Part], key: str, value: str) -> Part | None:
    """Return the part of a list with this ID."""
    return next((p for p in parts if p.get(key) == value), None)


def pool_of(found: Part, pool_id: str) -> Part:
    """Return a pool of a tree."""
    pool = part(found["pools"], "pool_id", pool_id)
    if pool is None:
        errors.failed(f"pool {pool_id} isn't in load balancer {found['loadbalancer_id']}")
    return pool


def put(parts: list[Part], key: str, change: Part) -> Part:
    """Add a part to a list, or give the one with the same ID the fields of the change. Unset fields stay."""
    known = part(parts, key, change[key])
    if known is None:
        if not change.keys() & {"protocol", "address"}:  # which an update doesn't have
            errors.failed(f"{key.removesuffix('_id')} {change[key]}: Octavia has none any more")
        parts.append(change)
        return change
    known.update(change)
    return known


def drop(parts: list[Part], key: str, value: str) -> None:
    """Remove the part with this ID from a list."""
    parts[:] = [p for p in parts if p.get(key) != value]


def put_listener(found: Part, change: Part) -> None:
    """Add or change a listener, with the pool that may come with it."""
    pool = change.pop("default_pool", None)
    if pool and pool.get("pool_id"):
        change["default_pool_id"] = pool["pool_id"]
        put_pool(found, pool)
    put(found["listeners"], "listener_id", change)


def put_pool(found: Part, change: Part) -> None:
    """Add or change a pool. One that is made for a listener is its default pool."""
    pool = put(found["pools"], "pool_id", change)
    pool["members"] = pool.get("members") or []
    listener = part(found["listeners"], "listener_id", change.get("listener_id") or "")
    if listener is not None:
        listener["default_pool_id"] = pool["pool_id"]


def drop_pool(found: Part, pool_id: str) -> None:
    """Remove a pool, also from the listeners that use it."""
    drop(found["pools"], "pool_id", pool_id)
    for listener in using(found, pool_id):
        listener["default_pool_id"] = None


def using(found: Part, pool_id: str) -> list[Part]:
    """Return the listeners of a pool."""
    return [li for li in found["listeners"] if li.get("default_pool_id") == pool_id]


def vips(found: Part) -> Iterator[Part]:
    """Yield the VIP and the additional ones, with the fields of Octavia's additional VIPs."""
    yield {
        "ip_address": found.get("vip_address"),
        "subnet_id": found.get("vip_subnet_id"),
        "network_id": found.get("vip_network_id"),
        "port_id": found.get("vip_port_id"),
    }
    yield from found.get("additional_vips") or []
