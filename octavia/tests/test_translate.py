# SPDX-License-Identifier: Apache-2.0
"""Documents of flavors, pools and monitors that the real LB API accepts."""

from typing import Any

import pytest
from octavia.common import data_models as models
from octavia_lib.api.drivers import data_models as lib
from octavia_lib.api.drivers import exceptions

from fairlead_octavia_provider.api import Client, Document
from fairlead_octavia_provider.driver import Driver
from tests import database as db
from tests.cloud import Cloud
from tests.database import Database


def create(provider: Driver, api: Client, database: Database, balancer: models.LoadBalancer) -> Document:
    provider.loadbalancer_create(database.provider(balancer))
    found = api.get(balancer.project_id, balancer.id)
    assert found
    return found[0]


@pytest.mark.parametrize(
    ("flavor", "located", "paired"),
    [
        ({"forward": "l2dsr"}, {"mac", "segment"}, True),
        ({"forward": "l2dsr", "data_plane": "ipvs"}, set(), True),
        ({"forward": "ipip"}, set(), True),
        ({"forward": "gue", "data_plane": "ipvs"}, set(), True),
        ({"forward": "nat"}, set(), False),
        ({"forward": "nat", "data_plane": "ipvs"}, set(), False),
    ],
)
def test_modes(
    flavor: dict[str, str],
    located: set[str],
    paired: bool,
    provider: Driver,
    api: Client,
    database: Database,
    cloud: Cloud,
) -> None:
    database.flavor = flavor
    found = create(provider, api, database, database.served())
    assert found["forward"] == flavor["forward"]
    assert ("segment" in found) is (flavor.get("data_plane") != "ipvs")
    for member in found["pools"][0]["members"]:
        assert set(member) & {"mac", "segment", "tunnelEnd"} == located
    assert bool(cloud.pairs()) is paired


def test_vxlan(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    database.flavor = {"forward": "vxlan"}
    cloud.agents = [{"host": "compute1", "configurations": {"tunneling_ip": "192.0.2.7"}}]
    port = cloud.port("10.2.0.5", "vxlan-subnet")
    balancer = database.served(members=0)
    database.commit(database.member(balancer.pools[0], "10.2.0.5", subnet_id="vxlan-subnet"))
    member = create(provider, api, database, balancer)["pools"][0]["members"][0]
    assert (member["tunnelEnd"], member["mac"]) == ("192.0.2.7", port["mac_address"])
    assert member["segment"] == {"type": "vxlan", "id": 5001}
    database.flavor = {"forward": "l2dsr"}
    other = database.served(members=0)
    database.commit(database.member(other.pools[0], "10.2.0.5", subnet_id="vxlan-subnet"))
    with pytest.raises(exceptions.UnsupportedOptionError, match="forward vxlan"):
        provider.loadbalancer_create(database.provider(other))


@pytest.mark.parametrize(
    ("algorithm", "persistence", "plane", "wanted"),
    [
        ("SOURCE_IP_PORT", None, "xdp", {"sessionAffinity": "None"}),
        ("SOURCE_IP", None, "xdp", {"sessionAffinity": "ClientIP"}),
        ("SOURCE_IP_PORT", {"type": "SOURCE_IP"}, "xdp", {"sessionAffinity": "ClientIP"}),
        (
            "SOURCE_IP",
            {"type": "SOURCE_IP", "persistence_timeout": 360},
            "xdp",
            {"sessionAffinity": "ClientIP", "sessionAffinityTimeout": "360s"},
        ),
        ("ROUND_ROBIN", None, "ipvs", {"scheduler": "wrr"}),
        ("LEAST_CONNECTIONS", None, "ipvs", {"scheduler": "wlc"}),
        (
            "ROUND_ROBIN",
            {"type": "SOURCE_IP"},
            "ipvs",
            {"scheduler": "wrr", "sessionAffinity": "ClientIP", "sessionAffinityTimeout": "360s"},
        ),
        ("SOURCE_IP", {"type": "SOURCE_IP"}, "ipvs", {"sessionAffinity": "ClientIP"}),
    ],
)
def test_pools(
    algorithm: str, persistence: Any, plane: str, wanted: Document, provider: Driver, api: Client, database: Database
) -> None:
    database.flavor = {"forward": "nat", "data_plane": plane}
    balancer = database.balancer()
    pool = database.commit(database.pool(balancer, protocol="UDP", lb_algorithm=algorithm))
    if persistence:
        pool.session_persistence = models.SessionPersistence(pool_id=pool.id, **persistence)
    database.commit(database.listener(balancer, protocol="UDP", protocol_port=53, default_pool=pool))
    database.commit(database.listener(balancer, protocol="TCP", protocol_port=53))
    database.commit(database.member(pool, backup=True, weight=256, monitor_address="10.0.0.20", monitor_port=8080))
    found = create(provider, api, database, balancer)
    assert {(li["protocol"], li["port"]) for li in found["listeners"]} == {("UDP", 53), ("TCP", 53)}
    assert wanted.items() <= found["pools"][0].items()
    member = found["pools"][0]["members"][0]
    assert (member["backup"], member["weight"], member["monitorAddress"], member["monitorPort"]) == (
        True,
        256,
        "10.0.0.20",
        8080,
    )


@pytest.mark.parametrize("kind", ["TCP", "HTTP", "HTTPS", "UDP-CONNECT", "PING"])
def test_monitors(kind: str, provider: Driver, api: Client, database: Database) -> None:
    """Fields of HTTP come with monitors of other types, too, and a monitor's port with PING."""
    balancer = database.served()
    pool = balancer.pools[0]
    balancer.listeners[0].protocol = pool.protocol = "UDP" if kind == "UDP-CONNECT" else "TCP"
    pool.members[0].monitor_port = 8080
    database.commit(database.monitor(pool, type=kind, http_method="GET", url_path="/", rise_threshold=10))
    check = create(provider, api, database, balancer)["pools"][0]["healthCheck"]
    assert check["rise"] == 10
    assert ("path" in check) is (kind in ("HTTP", "HTTPS"))
    if "path" in check:
        assert check["expectedCodes"] == "200"


@pytest.mark.parametrize(("delay", "timeout", "interval"), [(5, 3, "5s"), (2, 3, "3s"), (1, 1, "1s")])
def test_monitor_that_waits_longer_than_its_delay(
    delay: int, timeout: int, interval: str, provider: Driver, api: Client, database: Database
) -> None:
    balancer = database.served()
    database.commit(database.monitor(balancer.pools[0], delay=delay, timeout=timeout))
    check = create(provider, api, database, balancer)["pools"][0]["healthCheck"]
    assert (check["interval"], check["timeout"]) == (interval, f"{timeout}s")


@pytest.mark.parametrize(
    ("forward", "plane", "reached"),
    [("l2dsr", "xdp", True), ("nat", "xdp", False), ("gue", "ipvs", True), ("l2dsr", "ipvs", False)],
)
def test_ipv6_members_of_ipv4_vip(
    forward: str, plane: str, reached: bool, provider: Driver, api: Client, database: Database
) -> None:
    database.flavor = {"forward": forward, "data_plane": plane}
    balancer = database.served(members=0)
    database.commit(database.member(balancer.pools[0], "fd00::11", subnet_id="member-subnet6"))
    if reached:
        assert create(provider, api, database, balancer)["pools"][0]["members"][0]["address"] == "fd00::11"
    else:
        with pytest.raises(exceptions.UnsupportedOptionError, match=f"fd00::11: .* another IP family.* {forward} "):
            provider.loadbalancer_create(database.provider(balancer))


def test_reset_of_a_monitor(provider: Driver, api: Client, database: Database) -> None:
    """A None in a change is the default, not the value before."""
    balancer = database.served()
    pool = balancer.pools[0]
    texts = {"url_path": "/up", "http_method": "HEAD", "expected_codes": "204", "domain_name": "a.example"}
    monitor = database.commit(database.monitor(pool, type="HTTP", http_version=1.1, fall_threshold=7, **texts))
    assert create(provider, api, database, balancer)["pools"][0]["healthCheck"]["fall"] == 7
    reset = lib.HealthMonitor(healthmonitor_id=monitor.id, max_retries_down=None, **dict.fromkeys(texts))
    provider.health_monitor_update(db.monitor(monitor), reset)
    found = api.get(balancer.project_id, balancer.id)
    assert found
    check = found[0]["pools"][0]["healthCheck"]
    assert (check["fall"], check["expectedCodes"], check.get("path", "/")) == (3, "200", "/")
    assert not {"host", "method"} & set(check) or (check.get("host"), check["method"]) == (None, "GET")
