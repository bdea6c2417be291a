# SPDX-License-Identifier: Apache-2.0
"""Calls of the driver, with the real LB API."""

import gc
import os
from typing import Any

import pytest
from octavia.common import data_models as models
from octavia_lib.api.drivers import data_models as lib
from octavia_lib.api.drivers import exceptions

from fairlead_octavia_provider.api import Client, Document, Problem
from fairlead_octavia_provider.driver import Driver
from tests import database as db
from tests.cloud import MEMBER_SUBNET6, VIP_NETWORK, VIP_SUBNET6, VIP_VLAN, VLAN, Cloud
from tests.conftest import override
from tests.database import Database


def document(api: Client, balancer: models.LoadBalancer, at: int = 0) -> Document:
    """Return the document of a load balancer, without what the LB API completes."""
    found = api.get(balancer.project_id, balancer.id if at == 0 else f"{balancer.id}.{at}")
    assert found is not None
    return found[0]


def test_create_all_in_one(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    found = document(api, balancer)
    pool, listener = balancer.pools[0], balancer.listeners[0]
    segment = {"type": "vlan", "id": VLAN}
    assert found == {
        "name": balancer.id,
        "address": balancer.vip.ip_address,
        "forward": "l2dsr",
        "labels": {"octavia": balancer.id},
        "segment": {"type": "vlan", "id": VIP_VLAN},
        "listeners": [{"name": listener.id, "port": 80, "protocol": "TCP", "pool": pool.id, "enabled": True}],
        "pools": [
            {
                "name": pool.id,
                "sessionAffinity": "None",
                "healthCheck": {"type": "tcp", "interval": "5s", "timeout": "3s", "rise": 2, "fall": 3},
                "members": [
                    {
                        "address": f"10.0.0.{at}",
                        "port": 80,
                        "weight": 1,
                        "segment": segment,
                        "mac": cloud.at(f"10.0.0.{at}")["mac_address"],
                    }
                    for at in (11, 12)
                ],
            }
        ],
    }
    vip = balancer.vip.ip_address
    assert cloud.pairs() == {("10.0.0.11", vip), ("10.0.0.12", vip)}


def test_parts_one_by_one(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    balancer = database.balancer()
    provider.loadbalancer_create(database.provider(balancer))
    listener = database.listener(balancer)
    provider.listener_create(db.listener(listener))
    database.commit(listener)
    pool = database.pool(balancer, listeners=[listener])
    provider.pool_create(db.pool(pool))
    assert document(api, balancer)["listeners"][0]["pool"] == pool.id
    database.commit(pool)
    listener.default_pool, listener.default_pool_id = pool, pool.id
    member = database.member(pool)
    provider.member_create(db.member(member))
    database.commit(member)
    monitor = database.monitor(
        pool,
        type="HTTP",
        http_method="HEAD",
        url_path="/up",
        expected_codes="200,202-204",
        domain_name="Shop.Example",
        http_version=1.1,
    )
    provider.health_monitor_create(db.monitor(monitor))
    database.commit(monitor)
    assert document(api, balancer)["pools"][0]["healthCheck"] == {
        "type": "http",
        "method": "HEAD",
        "path": "/up",
        "expectedCodes": "200,202-204",
        "host": "shop.example",
        "interval": "5s",
        "timeout": "3s",
        "rise": 2,
        "fall": 3,
    }
    provider.health_monitor_update(db.monitor(monitor), lib.HealthMonitor(healthmonitor_id=monitor.id, delay=9))
    assert document(api, balancer)["pools"][0]["healthCheck"]["path"] == "/up"
    assert document(api, balancer)["pools"][0]["healthCheck"]["interval"] == "9s"
    provider.member_update(db.member(member), lib.Member(member_id=member.id, weight=0, monitor_port=8080))
    assert document(api, balancer)["pools"][0]["members"][0]["weight"] == 0
    member.monitor_port = 8080
    provider.member_update(db.member(member), lib.Member(member_id=member.id, weight=7))
    assert document(api, balancer)["pools"][0]["members"][0]["monitorPort"] == 8080
    provider.health_monitor_delete(db.monitor(monitor))
    assert "healthCheck" not in document(api, balancer)["pools"][0]
    pool.health_monitor = None
    provider.member_delete(db.member(member))
    assert not document(api, balancer)["pools"][0].get("members")
    assert cloud.pairs() == set()
    pool.members.remove(member)
    provider.pool_delete(db.pool(pool))
    assert not document(api, balancer).get("pools")
    assert "pool" not in document(api, balancer)["listeners"][0]
    balancer.pools.remove(pool)
    listener.default_pool, listener.default_pool_id = None, None
    provider.listener_delete(db.listener(listener))
    assert not document(api, balancer).get("listeners")
    provider.loadbalancer_delete(database.provider(balancer))
    assert api.get(balancer.project_id, balancer.id) is None


def test_update_of_deleted_part(provider: Driver, database: Database) -> None:
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    listener, pool, member = database.listener(balancer), database.pool(balancer), database.member(balancer.pools[0])
    with pytest.raises(exceptions.DriverError, match=f"listener {listener.id}: Octavia has none any more"):
        provider.listener_update(db.listener(listener), lib.Listener(listener_id=listener.id, admin_state_up=False))
    with pytest.raises(exceptions.DriverError, match=f"pool {pool.id}: Octavia has none any more"):
        provider.pool_update(db.pool(pool), lib.Pool(pool_id=pool.id, admin_state_up=False))
    with pytest.raises(exceptions.DriverError, match=f"member {member.id}: Octavia has none any more"):
        provider.member_update(db.member(member), lib.Member(member_id=member.id, weight=2))
    bare = database.pool(balancer)
    database.commit(bare)
    monitor = database.monitor(bare)
    with pytest.raises(exceptions.DriverError, match=f"health monitor {monitor.id}: Octavia has none any more"):
        provider.health_monitor_update(db.monitor(monitor), lib.HealthMonitor(healthmonitor_id=monitor.id, delay=9))


def test_batch_update(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    pool = balancer.pools[0]

    def members() -> list[str]:
        return [m["address"] for m in document(api, balancer)["pools"][0].get("members") or []]

    wanted = [database.member(pool, "10.0.0.13"), pool.members[1]]
    provider.member_batch_update(pool.id, [db.member(m) for m in wanted])
    assert sorted(members()) == ["10.0.0.12", "10.0.0.13"]
    assert {address for address, _ in cloud.pairs()} == {"10.0.0.12", "10.0.0.13"}
    bad = database.member(pool, "10.0.0.99")
    with pytest.raises(exceptions.DriverError, match=r"10\.0\.0\.99: Neutron has 0 ports"):
        provider.member_batch_update(pool.id, [db.member(database.member(pool, "10.0.0.14")), db.member(bad)])
    assert sorted(members()) == ["10.0.0.12", "10.0.0.13"], "half of a batch was applied"
    assert {address for address, _ in cloud.pairs()} == {"10.0.0.12", "10.0.0.13"}
    provider.member_batch_update(pool.id, [])
    assert members() == []
    pool.members = []
    provider.member_batch_update(pool.id, [])


def test_texts_and_equal_values_write_nothing(provider: Driver, api: Client, database: Database) -> None:
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    pool, listener = balancer.pools[0], balancer.listeners[0]
    tag = api.get(balancer.project_id, balancer.id)
    assert tag
    text = {"name": "x", "description": "y"}
    before = database.calls
    provider.loadbalancer_update(database.provider(balancer), lib.LoadBalancer(loadbalancer_id=balancer.id, **text))
    provider.listener_update(db.listener(listener), lib.Listener(listener_id=listener.id, **text))
    provider.pool_update(db.pool(pool), lib.Pool(pool_id=pool.id, **text))
    provider.member_update(db.member(pool.members[0]), lib.Member(member_id=pool.members[0].id, name="x"))
    provider.health_monitor_update(
        db.monitor(pool.health_monitor), lib.HealthMonitor(healthmonitor_id=pool.health_monitor.id, name="x")
    )
    provider.loadbalancer_failover(balancer.id)
    assert database.calls == before
    provider.listener_update(db.listener(listener), lib.Listener(listener_id=listener.id, protocol_port=80))
    again = api.get(balancer.project_id, balancer.id)
    assert again
    assert again[1] == tag[1]


def test_cascade_delete(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    balancer = database.served(members=5)
    shared = balancer.pools[0]
    database.commit(database.listener(balancer, protocol="UDP", default_pool=None))
    database.commit(database.listener(balancer, protocol_port=81))
    database.commit(database.pool(balancer))
    provider.loadbalancer_create(database.provider(balancer))
    assert len(document(api, balancer)["listeners"]) == 3
    assert len(shared.members) == len(cloud.pairs())
    # Port and subnet of a member, and the network, are deleted first.
    del cloud.ports[cloud.at("10.0.0.11")["id"]]
    cloud.subnets.clear()
    cloud.networks.clear()
    provider.loadbalancer_delete(database.provider(balancer), cascade=True)
    provider.loadbalancer_delete(database.provider(balancer), cascade=True)
    assert api.get(balancer.project_id, balancer.id) is None
    assert cloud.pairs() == set()
    assert not any(port["tags"] for port in cloud.ports.values())


def test_deletes_need_no_look_up(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    cloud.broken = 503
    pool = balancer.pools[0]
    provider.member_delete(db.member(pool.members[0]))
    assert [m["address"] for m in document(api, balancer)["pools"][0]["members"]] == ["10.0.0.12"]
    provider.loadbalancer_delete(database.provider(balancer), cascade=True)


def test_neutron_is_away(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    balancer = database.served()
    cloud.broken = 503
    with pytest.raises(exceptions.DriverError, match="Neutron"):
        provider.loadbalancer_create(database.provider(balancer))
    assert api.get(balancer.project_id, balancer.id) is None
    cloud.broken = None
    provider.loadbalancer_create(database.provider(balancer))


@pytest.mark.parametrize("owned", [True, False])
def test_vip_port_of_refused_load_balancer(owned: bool, provider: Driver, database: Database, cloud: Cloud) -> None:
    balancer = database.balancer()
    database.commit(database.listener(balancer, protocol="SCTP"))
    device = {"device_owner": "Octavia", "device_id": f"lb-{balancer.id}"} if owned else {"name": "mine"}
    port = cloud.port(balancer.vip.ip_address, "vip-subnet", **device)
    balancer.vip.port_id = port["id"]
    before = dict(port)
    with pytest.raises(exceptions.UnsupportedOptionError, match="SCTP"):
        provider.loadbalancer_create(database.provider(balancer))
    assert (port["id"] in cloud.ports) is not owned
    assert port == before


def test_additional_vip(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    override(forward="l2dsr")
    balancer = database.served()
    balancer.additional_vips = [
        models.AdditionalVip(
            load_balancer_id=balancer.id,
            ip_address=f"2001:DB8:0::{balancer.id[:4]}",
            subnet_id=VIP_SUBNET6,
            network_id=VIP_NETWORK,
            port_id="vip6",
        )
    ]
    listener = balancer.listeners[0]
    listener.allowed_cidrs = [models.ListenerCidr(listener_id=listener.id, cidr="10.0.0.0/8")]
    pool = balancer.pools[0]
    database.commit(database.member(pool, "fd00:0::11", subnet_id=MEMBER_SUBNET6))
    provider.loadbalancer_create(database.provider(balancer))
    first, second = document(api, balancer), document(api, balancer, 1)
    assert first["listeners"][0]["sourceRanges"] == ["10.0.0.0/8"]
    assert "enabled" not in first["listeners"][0] or first["listeners"][0]["enabled"]
    # No client of IPv6 is allowed, so none is served.
    assert second["listeners"][0]["enabled"] is False
    assert len(first["pools"][0]["members"]) == len(second["pools"][0]["members"]) == 3
    assert len(cloud.pairs()) == 6
    change = lib.Listener(listener_id=listener.id, allowed_cidrs=["10.0.0.0/8", "2001:db8::/32"])
    provider.listener_update(db.listener(listener), change)
    assert document(api, balancer, 1)["listeners"][0]["sourceRanges"] == ["2001:db8::/32"]
    provider.loadbalancer_delete(database.provider(balancer), cascade=True)
    assert api.get(balancer.project_id, f"{balancer.id}.1") is None
    assert cloud.pairs() == set()


def test_admin_state(provider: Driver, api: Client, database: Database) -> None:
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    pool, listener = balancer.pools[0], balancer.listeners[0]
    provider.pool_update(db.pool(pool), lib.Pool(pool_id=pool.id, admin_state_up=False))
    assert "pool" not in document(api, balancer)["listeners"][0]
    provider.listener_update(db.listener(listener), lib.Listener(listener_id=listener.id, admin_state_up=False))
    assert document(api, balancer)["listeners"][0]["enabled"] is False
    provider.loadbalancer_update(
        database.provider(balancer), lib.LoadBalancer(loadbalancer_id=balancer.id, admin_state_up=False)
    )
    assert document(api, balancer)["listeners"][0]["enabled"] is False
    member = pool.members[0]
    provider.member_update(db.member(member), lib.Member(member_id=member.id, admin_state_up=False))
    assert document(api, balancer)["pools"][0]["members"][0]["enabled"] is False


def test_quota_has_the_text_of_the_api(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    override(forward="nat")
    balancer = database.balancer()
    provider.loadbalancer_create(database.provider(balancer))
    pools = [database.commit(database.pool(balancer)) for _ in range(2)]
    for pool in pools:
        for at in range(256):
            database.commit(database.member(pool, f"10.0.1.{at}"))
    with pytest.raises(exceptions.DriverError, match=r"LB API: .*400"):
        provider.pool_update(db.pool(pools[0]), lib.Pool(pool_id=pools[0].id, admin_state_up=False))


def test_address_in_use(provider: Driver, database: Database) -> None:
    first, second = database.balancer(), database.balancer()
    override(segments=False)
    second.vip.ip_address = first.vip.ip_address
    provider.loadbalancer_create(database.provider(first))
    with pytest.raises(exceptions.Conflict, match="address"):
        provider.loadbalancer_create(database.provider(second))


def test_of_somebody_else(provider: Driver, api: Client, database: Database) -> None:
    balancer = database.balancer()
    api.put(balancer.project_id, balancer.id, {"forward": "nat", "address": balancer.vip.ip_address}, None)
    with pytest.raises(exceptions.Conflict, match="Octavia hasn't made"):
        provider.loadbalancer_create(database.provider(balancer))
    assert api.get(balancer.project_id, balancer.id), "another client's load balancer was deleted"


def test_repeated_create(provider: Driver, database: Database) -> None:
    balancer = database.served()
    for _ in range(2):
        provider.loadbalancer_create(database.provider(balancer))


def test_member_without_subnet(provider: Driver, database: Database, cloud: Cloud, api: Client) -> None:
    balancer = database.served(members=0)
    provider.loadbalancer_create(database.provider(balancer))
    pool = balancer.pools[0]
    with pytest.raises(exceptions.UnsupportedOptionError, match="isn't in its subnet"):
        provider.member_create(db.member(database.member(pool, "10.0.0.11", subnet_id=None)))


def test_zone_is_kept(provider: Driver, api: Client, database: Database) -> None:
    balancer = database.served()
    created = database.provider(balancer)
    created.availability_zone = {"group": "rack1"}
    provider.loadbalancer_create(created)
    balancer.availability_zone = "zone1"  # later Octavia has the name only
    listener = balancer.listeners[0]
    provider.listener_update(db.listener(listener), lib.Listener(listener_id=listener.id, timeout_client_data=60000))
    found: dict[str, Any] = document(api, balancer)
    assert found["labels"]["group"] == "rack1"
    assert found["listeners"][0]["idleTimeout"] in ("1m", "1m0s", "60000ms", "60s")


@pytest.mark.parametrize("lost", [True, False])
def test_failed_create_leaves_nothing(
    lost: bool, provider: Driver, api: Client, database: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second VIP is refused, or the answer to the first one is lost."""
    balancer = database.served()
    balancer.additional_vips = [
        models.AdditionalVip(
            load_balancer_id=balancer.id,
            ip_address=f"2001:db8::{balancer.id[:4]}",
            subnet_id=VIP_SUBNET6,
            network_id=VIP_NETWORK,
            port_id="vip6",
        )
    ]
    put = api.put

    def fail(project: str, name: str, document: Document, tag: str | None) -> None:
        if not lost and name != balancer.id:
            raise Problem(422, "in use", ("address",))
        put(project, name, document, tag)
        if lost:
            raise Problem(0, "time-out")

    monkeypatch.setattr(api, "put", fail)
    with pytest.raises((exceptions.DriverError, exceptions.Conflict)):
        provider.loadbalancer_create(database.provider(balancer))
    assert api.get(balancer.project_id, balancer.id) is None
    assert api.get(balancer.project_id, f"{balancer.id}.1") is None
    assert cloud.pairs() == set()


def test_lost_answer_to_a_change(
    provider: Driver, api: Client, database: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeated PUT is answered with 412, as the first one was applied."""
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    put = api.put

    def repeat(*arguments: Any) -> None:
        put(*arguments)
        put(*arguments)

    monkeypatch.setattr(api, "put", repeat)
    member = database.member(balancer.pools[0], "10.0.0.13")
    provider.member_create(db.member(member))
    assert ("10.0.0.13", balancer.vip.ip_address) in cloud.pairs()


def test_other_clients_changes(
    provider: Driver, api: Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change is repeated with the document that another client has written meanwhile, some times."""
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    put, others = api.put, [2]

    def change(project: str, name: str, document: Document, tag: str | None) -> None:
        current = api.get(project, name)
        if others[0] and current:
            others[0] -= 1
            put(project, name, current[0] | {"labels": {**current[0]["labels"], "x": str(others[0])}}, current[1])
        put(project, name, document, tag)

    monkeypatch.setattr(api, "put", change)
    listener = balancer.listeners[0]
    update = lib.Listener(listener_id=listener.id, admin_state_up=False)
    provider.listener_update(db.listener(listener), update)
    assert document(api, balancer)["listeners"][0]["enabled"] is False
    others[0] = 100
    update.admin_state_up = True
    with pytest.raises(exceptions.DriverError, match="other clients keep changing it"):
        provider.listener_update(db.listener(listener), update)


def test_large_batch(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    """A new member takes two requests to Neutron, and one that is removed three; others few."""
    balancer = database.served(members=0)
    provider.loadbalancer_create(database.provider(balancer))
    addresses = [f"10.0.3.{at}" for at in range(100)]
    for address in addresses:
        cloud.port(address, "member-subnet")
    members = [database.member(balancer.pools[0], address) for address in addresses]
    for wanted, requests in ((members, 2), ([], 3)):
        cloud.requests.clear()
        provider.member_batch_update(balancer.pools[0].id, [db.member(m) for m in wanted])
        assert len(cloud.pairs()) == len(wanted)
        assert len(cloud.requests) <= requests * len(members) + 8


def test_descriptors_stay(provider: Driver, database: Database) -> None:
    balancer = database.served()
    provider.loadbalancer_create(database.provider(balancer))
    member = balancer.pools[0].members[0]

    def change(times: int) -> int:
        for at in range(times):
            provider.member_update(db.member(member), lib.Member(member_id=member.id, weight=at + 1))
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = change(3)
    assert change(20) <= before + 3


def test_port_of_the_user(provider: Driver, database: Database, cloud: Cloud) -> None:
    balancer = database.served()
    fields = {"device_id": "vm7", "allowed_address_pairs": [{"ip_address": "10.9.9.9"}]}
    port = cloud.port(balancer.vip.ip_address, "vip-subnet", name="mine", **fields)
    balancer.vip.port_id = port["id"]
    before = dict(port)
    provider.loadbalancer_create(database.provider(balancer))
    change = lib.LoadBalancer(loadbalancer_id=balancer.id, admin_state_up=False)
    provider.loadbalancer_update(database.provider(balancer), change)
    provider.loadbalancer_delete(database.provider(balancer), cascade=True)
    assert cloud.ports[port["id"]] == before


def test_member_in_the_subnet_of_the_vip(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    balancer = database.served(members=0)
    provider.loadbalancer_create(database.provider(balancer))
    cloud.port("198.18.255.7", "vip-subnet")
    member = database.member(balancer.pools[0], "198.18.255.7", subnet_id=None)
    provider.member_create(db.member(member))
    database.commit(member)
    provider.member_update(db.member(member), lib.Member(member_id=member.id, weight=5))
    assert document(api, balancer)["pools"][0]["members"][0]["weight"] == 5
    provider.member_delete(db.member(member))
    assert not document(api, balancer)["pools"][0].get("members")


def test_all_clients_are_allowed(provider: Driver, api: Client, database: Database) -> None:
    balancer = database.served()
    listener = balancer.listeners[0]
    listener.allowed_cidrs = [models.ListenerCidr(listener_id=listener.id, cidr="0.0.0.0/0")]
    provider.loadbalancer_create(database.provider(balancer))
    found = document(api, balancer)["listeners"][0]
    assert "sourceRanges" not in found
    assert found["enabled"]
