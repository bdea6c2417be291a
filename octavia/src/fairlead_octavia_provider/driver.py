# SPDX-License-Identifier: Apache-2.0
"""The provider driver. It keeps nothing: a call reads Octavia's tree, applies the change and writes it to the LB API.

A call that returns has been accepted by the LB API, one that raises has changed nothing. The provider agent reports
the status once Octavia has committed the change.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from octavia_lib.api.drivers import provider_base
from oslo_log import log

from fairlead_octavia_provider import errors, flavors, tree
from fairlead_octavia_provider.api import Client
from fairlead_octavia_provider.balancer import Balancer
from fairlead_octavia_provider.neutron import Neutron
from fairlead_octavia_provider.tree import Part, plain

LOG = log.getLogger(__name__)

_TEXTS = {"name", "description", "tags", "project_id"}
"""Fields that the LB API doesn't have."""

_api: list[Client] = []


def shared_api() -> Client:
    """Return the process's client of the LB API: Octavia makes a driver for each request."""
    if not _api:
        _api.append(Client())
    return _api[0]


class Driver(provider_base.ProviderDriver):
    """Writes load balancers of Octavia to Fairlead's LB API."""

    # Load balancers. VIP ports are Octavia's or the user's: create_vip_port isn't implemented.

    def loadbalancer_create(self, loadbalancer: Any) -> None:
        """Write a load balancer with all its parts. A failed one leaves nothing, nor the port that Octavia has made."""
        found = tree.tree(loadbalancer) or {}
        balancer = Balancer(shared_api(), Neutron(), found)
        try:
            balancer.write()
        except Exception:
            undos: list[Callable[[], None]] = [balancer.remove] if balancer.changing else []
            undos += [
                partial(balancer.neutron.remove_vip_port, vip["port_id"], balancer.id) for vip in tree.vips(found)
            ]
            for undo in undos:
                try:
                    undo()
                except Exception as error:
                    LOG.warning("A part of load balancer %s, which has failed, stays: %s", balancer.id, error)
            raise

    def loadbalancer_update(self, old_loadbalancer: Any, new_loadbalancer: Any) -> None:
        """Write changed fields of a load balancer."""
        change = plain(new_loadbalancer)
        if _changes(change, "loadbalancer_id"):
            with _changed(old_loadbalancer.loadbalancer_id) as found:
                found.update(change)

    def loadbalancer_delete(self, loadbalancer: Any, cascade: bool = False) -> None:
        """Delete a load balancer; one that the LB API doesn't have is a success."""
        Balancer(shared_api(), Neutron(), tree.tree(loadbalancer) or {}).remove()

    def loadbalancer_failover(self, loadbalancer_id: str) -> None:
        """Do nothing: all nodes of a group forward at once, and none has to be replaced."""

    # Listeners

    def listener_create(self, listener: Any) -> None:
        """Write a listener, with the pool that may come with it."""
        self._put_listener(listener.loadbalancer_id, plain(listener))

    def listener_update(self, old_listener: Any, new_listener: Any) -> None:
        """Write changed fields of a listener."""
        change = plain(new_listener)
        if _changes(change, "listener_id", "loadbalancer_id"):
            self._put_listener(old_listener.loadbalancer_id, change | {"listener_id": old_listener.listener_id})

    def listener_delete(self, listener: Any) -> None:
        """Remove a listener."""
        with _changed(listener.loadbalancer_id, lenient=True) as found:
            tree.drop(found["listeners"], "listener_id", listener.listener_id)

    def _put_listener(self, load_balancer_id: str, change: Part) -> None:
        with _changed(load_balancer_id) as found:
            tree.put_listener(found, change)

    # Pools

    def pool_create(self, pool: Any) -> None:
        """Write a pool, and the listener whose default pool it is."""
        self._put_pool(pool.loadbalancer_id, plain(pool))

    def pool_update(self, old_pool: Any, new_pool: Any) -> None:
        """Write changed fields of a pool."""
        change = plain(new_pool)
        if _changes(change, "pool_id", "loadbalancer_id"):
            change.pop("listener_id", None)
            self._put_pool(old_pool.loadbalancer_id, change | {"pool_id": old_pool.pool_id})

    def pool_delete(self, pool: Any) -> None:
        """Remove a pool, with its members and its monitor."""
        with _changed(pool.loadbalancer_id, lenient=True) as found:
            tree.drop_pool(found, pool.pool_id)

    def _put_pool(self, load_balancer_id: str, change: Part) -> None:
        with _changed(load_balancer_id) as found:
            tree.put_pool(found, change)

    # Members

    def member_create(self, member: Any) -> None:
        """Write a member."""
        self._put_member(member.pool_id, plain(member))

    def member_update(self, old_member: Any, new_member: Any) -> None:
        """Write changed fields of a member."""
        change = plain(new_member)
        if _changes(change, "member_id", "pool_id"):
            self._put_member(old_member.pool_id, change | {"member_id": old_member.member_id})

    def member_delete(self, member: Any) -> None:
        """Remove a member."""
        with _changed_pool(member.pool_id, lenient=True) as pool:
            tree.drop(pool["members"], "member_id", member.member_id)

    def member_batch_update(self, pool_id: str, members: list[Any]) -> None:
        """Write the members that a pool is to have: all of them, or nothing."""
        with _changed_pool(pool_id) as pool:
            known = {m["member_id"]: m for m in pool["members"]}
            changes = [plain(member) for member in members]
            pool["members"] = [known.get(change["member_id"], {}) | change for change in changes]

    def _put_member(self, pool_id: str, change: Part) -> None:
        with _changed_pool(pool_id) as pool:
            tree.put(pool["members"], "member_id", change)

    # Health monitors

    def health_monitor_create(self, healthmonitor: Any) -> None:
        """Write the monitor of a pool."""
        self._put_monitor(healthmonitor.pool_id, plain(healthmonitor))

    def health_monitor_update(self, old_healthmonitor: Any, new_healthmonitor: Any) -> None:
        """Write changed fields of a monitor."""
        change = plain(new_healthmonitor)
        if _changes(change, "healthmonitor_id", "pool_id"):
            self._put_monitor(
                old_healthmonitor.pool_id, change | {"healthmonitor_id": old_healthmonitor.healthmonitor_id}
            )

    def health_monitor_delete(self, healthmonitor: Any) -> None:
        """Remove the monitor of a pool."""
        with _changed_pool(healthmonitor.pool_id, lenient=True) as pool:
            pool["healthmonitor"] = None

    def _put_monitor(self, pool_id: str, change: Part) -> None:
        with _changed_pool(pool_id) as pool:
            if not pool.get("healthmonitor") and "type" not in change:  # which an update doesn't have
                errors.failed(f"health monitor {change['healthmonitor_id']}: Octavia has none any more")
            pool["healthmonitor"] = (pool.get("healthmonitor") or {}) | change

    # Flavors and availability zones

    def get_supported_flavor_metadata(self) -> dict[str, str]:
        """Return the keys of flavors with their descriptions."""
        return flavors.FLAVOR

    def validate_flavor(self, flavor_metadata: dict[str, Any]) -> None:
        """Refuse a flavor that the driver can't serve."""
        flavors.validate_flavor(flavor_metadata)

    def get_supported_availability_zone_metadata(self) -> dict[str, str]:
        """Return the keys of availability zones with their descriptions."""
        return flavors.ZONE

    def validate_availability_zone(self, availability_zone_metadata: dict[str, Any]) -> None:
        """Refuse an availability zone that the driver can't serve."""
        flavors.validate_zone(availability_zone_metadata)


@contextmanager
def _changed(load_balancer_id: str, *, lenient: bool = False) -> Iterator[Part]:
    """Yield Octavia's tree of a load balancer, and write it when it has been changed."""
    found = tree.load(load_balancer_id)
    if found is None:
        errors.failed(f"load balancer {load_balancer_id}: Octavia has no such load balancer")
    yield found
    Balancer(shared_api(), Neutron(), found).write(lenient=lenient)


@contextmanager
def _changed_pool(pool_id: str, *, lenient: bool = False) -> Iterator[Part]:
    """Yield a pool of a tree, as _changed does."""
    with _changed(tree.owner(pool_id), lenient=lenient) as found:
        yield tree.pool_of(found, pool_id)


def _changes(change: Part, *identifiers: str) -> bool:
    """Say whether a change has fields other than texts, of which the LB API has none."""
    return bool(set(change) - _TEXTS - set(identifiers))
