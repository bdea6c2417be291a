# SPDX-License-Identifier: Apache-2.0
"""Octavia's database as its own data models, from which Octavia's own code makes what drivers get."""

import ipaddress
import itertools
import uuid
from typing import Any

from octavia.api.drivers import utils
from octavia.common import data_models as models
from octavia_lib.api.drivers import data_models as lib
from octavia_lib.api.drivers import exceptions

from tests.cloud import MEMBER_SUBNET, VIP_NETWORK, VIP_SUBNET

_vips = itertools.count(int(ipaddress.ip_address("198.18.1.1")))


def new_id() -> str:
    """Return an ID as Octavia makes them."""
    return str(uuid.uuid4())


class Database:
    """Load balancers that Octavia has committed, and the driver agent's sockets."""

    def __init__(self) -> None:
        self.balancers: dict[str, models.LoadBalancer] = {}
        self.flavor: dict[str, str] | None = None
        self.statuses: list[dict[str, Any]] = []
        self.statistics: list[dict[str, Any]] = []
        self.failures: list[Exception] = []
        self.calls = 0

    def balancer(self, **fields: Any) -> models.LoadBalancer:
        """Commit a load balancer without parts."""
        identifier = fields.pop("id", None) or new_id()
        vip = models.Vip(
            load_balancer_id=identifier,
            ip_address=str(ipaddress.ip_address(next(_vips))),
            sg_ids=[],
            subnet_id=VIP_SUBNET,
            network_id=VIP_NETWORK,
            port_id=f"vip-{identifier}",
        )
        self.balancers[identifier] = balancer = models.LoadBalancer(
            **{
                "id": identifier,
                "project_id": f"p{uuid.uuid4().hex[:31]}",
                "name": "lb",
                "enabled": True,
                "vip": vip,
                "additional_vips": [],
                "listeners": [],
                "pools": [],
                **fields,
            }
        )
        return balancer

    def listener(self, balancer: models.LoadBalancer, **fields: Any) -> models.Listener:
        """Make a listener, with Octavia's defaults."""
        return models.Listener(
            **{
                "id": new_id(),
                "project_id": balancer.project_id,
                "load_balancer_id": balancer.id,
                "protocol": "TCP",
                "protocol_port": 80,
                "connection_limit": -1,
                "enabled": True,
                "load_balancer": balancer,
                "name": "",
                "timeout_client_data": 50000,
                "timeout_member_connect": 5000,
                "timeout_member_data": 50000,
                "timeout_tcp_inspect": 0,
                "client_authentication": "NONE",
                "insert_headers": {},
                **fields,
            }
        )

    def pool(self, balancer: models.LoadBalancer, **fields: Any) -> models.Pool:
        """Make a pool, with Octavia's defaults."""
        return models.Pool(
            **{
                "id": new_id(),
                "project_id": balancer.project_id,
                "load_balancer_id": balancer.id,
                "protocol": "TCP",
                "lb_algorithm": "SOURCE_IP_PORT",
                "enabled": True,
                "load_balancer": balancer,
                "tls_enabled": False,
                "name": "",
                **fields,
            }
        )

    def member(self, pool: models.Pool, address: str = "10.0.0.11", **fields: Any) -> models.Member:
        """Make a member, with Octavia's defaults."""
        return models.Member(
            **{
                "id": new_id(),
                "project_id": pool.project_id,
                "pool_id": pool.id,
                "ip_address": address,
                "protocol_port": 80,
                "weight": 1,
                "subnet_id": MEMBER_SUBNET,
                "enabled": True,
                "backup": False,
                "pool": pool,
                "name": "",
                "vnic_type": "normal",
                **fields,
            }
        )

    def monitor(self, pool: models.Pool, **fields: Any) -> models.HealthMonitor:
        """Make a health monitor."""
        return models.HealthMonitor(
            **{
                "id": new_id(),
                "project_id": pool.project_id,
                "pool_id": pool.id,
                "type": "TCP",
                "delay": 5,
                "timeout": 3,
                "rise_threshold": 2,
                "fall_threshold": 3,
                "enabled": True,
                "pool": pool,
                "name": "",
                **fields,
            }
        )

    def commit(self, part: Any) -> Any:
        """Put a part where it belongs."""
        if isinstance(part, models.Listener):
            part.load_balancer.listeners.append(part)
            if part.default_pool is not None:
                part.default_pool_id = part.default_pool.id
                part.default_pool.listeners.append(part)
                part.pools = [part.default_pool]
        elif isinstance(part, models.Pool):
            part.load_balancer.pools.append(part)
        elif isinstance(part, models.Member):
            part.pool.members.append(part)
        else:
            part.pool.health_monitor = part
        return part

    def served(self, members: int = 2, **fields: Any) -> models.LoadBalancer:
        """Commit a load balancer with a listener, a pool, members and a monitor."""
        balancer = self.balancer(**fields)
        pool = self.commit(self.pool(balancer))
        self.commit(self.listener(balancer, default_pool=pool))
        for at in range(members):
            self.commit(self.member(pool, f"10.0.0.{11 + at}"))
        self.commit(self.monitor(pool))
        return balancer

    # As the driver agent does

    def library(self) -> "Database":
        """Return what octavia-lib's DriverLibrary is."""
        return self

    def provider(self, balancer: models.LoadBalancer) -> lib.LoadBalancer:
        """Return a load balancer as drivers get it at its creation and deletion."""
        found = utils.db_loadbalancer_to_provider_loadbalancer(balancer)
        if self.flavor:
            found.flavor = self.flavor
        return found

    def get_loadbalancer(self, identifier: str) -> lib.LoadBalancer | None:
        """Return a load balancer as it comes through the socket: children are dictionaries."""
        self.calls += 1
        balancer = self.balancers.get(identifier)
        if balancer is None:
            return None
        return lib.LoadBalancer.from_dict(self.provider(balancer).to_dict(recurse=True, render_unsets=True))

    def get_pool(self, identifier: str) -> lib.Pool | None:
        """Return a pool as it comes through the socket."""
        self.calls += 1
        for balancer in self.balancers.values():
            for pool in balancer.pools:
                if pool.id == identifier:
                    found = utils.db_pool_to_provider_pool(pool)
                    return lib.Pool.from_dict(found.to_dict(recurse=True, render_unsets=True))
        return None

    def update_loadbalancer_status(self, status: dict[str, Any]) -> None:
        """Record a message, or fail as the next failure says."""
        if self.failures:
            raise self.failures.pop(0)
        self.statuses.append(status)

    def update_listener_statistics(self, statistics: dict[str, Any]) -> None:
        """Record statistics. Octavia refuses negative ones."""
        if any(value < 0 for record in statistics["listeners"] for key, value in record.items() if key != "id"):
            raise exceptions.UpdateStatisticsError(fault_string="negative")
        self.statistics.append(statistics)


def listener(part: models.Listener) -> lib.Listener:
    """Return a listener as drivers get it."""
    return utils.db_listener_to_provider_listener(part)


def pool(part: models.Pool) -> lib.Pool:
    """Return a pool as drivers get it."""
    return utils.db_pool_to_provider_pool(part)


def member(part: models.Member) -> lib.Member:
    """Return a member as drivers get it."""
    return utils.db_member_to_provider_member(part)


def monitor(part: models.HealthMonitor) -> lib.HealthMonitor:
    """Return a health monitor as drivers get it."""
    return utils.db_HM_to_provider_HM(part)
