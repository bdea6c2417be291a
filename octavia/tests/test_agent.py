# SPDX-License-Identifier: Apache-2.0
"""The provider agent: rounds against a server that behaves as the LB API with the request for agents."""

import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from octavia.common import data_models as models
from octavia_lib.api.drivers import exceptions

from fairlead_octavia_provider import agent as agents
from fairlead_octavia_provider import service
from fairlead_octavia_provider.api import Client, Problem
from fairlead_octavia_provider.balancer import Balancer
from fairlead_octavia_provider.neutron import Neutron
from fairlead_octavia_provider.state import State
from fairlead_octavia_provider.tree import tree
from tests.cloud import Cloud
from tests.conftest import connect, override
from tests.database import Database
from tests.lbapi import LBAPI


class Lab:
    """An agent with Octavia, Neutron and the LB API."""

    def __init__(self, fake: LBAPI, cloud: Cloud, database: Database) -> None:
        self.fake, self.cloud, self.database = fake, cloud, database
        self.agent = self.new_agent()

    def new_agent(self) -> agents.Agent:
        """Return another agent, as one on another host or after a restart."""
        agent = agents.Agent(Client(), State(service.octavia()), self.database.library, Neutron)
        agent.holder = f"agent{id(agent)}"
        return agent

    def write(self, balancer: models.LoadBalancer) -> None:
        """Write a load balancer to the LB API as the driver does."""
        found = tree(self.database.provider(balancer))
        assert found
        Balancer(Client(), Neutron(), found).write()

    def show(self, balancer: models.LoadBalancer, status: str = "ACTIVE", **parts: str) -> None:
        """Have Octavia's API show a load balancer, with all parts ACTIVE but those given by their IDs."""

        def part(identifier: str, **fields: Any) -> dict[str, Any]:
            return {
                "id": identifier,
                "provisioning_status": parts.get(identifier.replace("-", "_"), "ACTIVE"),
                "operating_status": "ONLINE",
                **fields,
            }

        objects: dict[str, list[dict[str, Any]]] = {
            "loadbalancers": [
                part(
                    balancer.id,
                    provider="fairlead",
                    project_id=balancer.project_id,
                    admin_state_up=balancer.enabled,
                    additional_vips=[],
                )
                | {"provisioning_status": status}
            ],
            "listeners": [
                part(li.id, loadbalancer_id=balancer.id, admin_state_up=li.enabled, default_pool_id=li.default_pool_id)
                for li in balancer.listeners
            ],
            "pools": [
                part(
                    p.id,
                    loadbalancer_id=balancer.id,
                    admin_state_up=p.enabled,
                    members=[{"id": m.id} for m in p.members],
                    healthmonitor_id=p.health_monitor.id if p.health_monitor else None,
                )
                for p in balancer.pools
            ],
            "members": [
                part(m.id, pool_id=p.id, address=m.ip_address, protocol_port=m.protocol_port, admin_state_up=m.enabled)
                for p in balancer.pools
                for m in p.members
            ],
            "healthmonitors": [
                part(p.health_monitor.id, admin_state_up=p.health_monitor.enabled)
                for p in balancer.pools
                if p.health_monitor
            ],
        }
        for kind, found in objects.items():
            identifiers = {o["id"] for o in found}
            known = [o for o in self.cloud.octavia.get(kind, []) if o["id"] not in identifiers]
            self.cloud.octavia[kind] = known + found

    def reported(self) -> dict[str, dict[str, str]]:
        """Return all records that Octavia has got since the last call, by IDs."""
        found: dict[str, dict[str, str]] = {}
        for message in self.database.statuses:
            for records in message.values():
                for record in records:
                    found.setdefault(record["id"], {}).update({k: v for k, v in record.items() if k != "id"})
        self.database.statuses.clear()
        return found


@pytest.fixture
def lab(conf: Any, cloud: Cloud, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    with LBAPI() as fake:
        override(api_urls=[fake.url], pending_interval=0.1, ports_interval=1000, api_timeout=20)
        monkeypatch.setattr(agents, "_PAUSE", 0.01)
        connect(Client(), cloud, database, monkeypatch)
        yield Lab(fake, cloud, database)


def _key(identifier: str) -> str:
    return identifier.replace("-", "_")


def test_created_load_balancer_becomes_active(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    everything = [balancer.listeners[0].id, balancer.pools[0].id, balancer.pools[0].health_monitor.id]
    everything += [m.id for m in balancer.pools[0].members]
    lab.show(balancer, "PENDING_CREATE", **{_key(i): "PENDING_CREATE" for i in everything})
    lab.agent.round()
    assert len(lab.database.statuses) == 1, "more than one message a round"
    assert lab.reported() == {i: {"provisioning_status": "ACTIVE"} for i in [*everything, balancer.id]}


def test_only_pending_parts_are_reported(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer, "PENDING_UPDATE", **{_key(balancer.listeners[0].id): "PENDING_UPDATE"})
    lab.agent.round()
    active = {"provisioning_status": "ACTIVE"}
    assert lab.reported() == {balancer.id: active, balancer.listeners[0].id: active}
    lab.show(balancer)
    lab.agent.round()
    assert lab.reported() == {}


def test_change_that_the_api_does_not_see(lab: Lab) -> None:
    """A new tag locks the load balancer, and nothing changes in the LB API."""
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer)
    lab.agent.round()
    lab.reported()
    lab.show(balancer, "PENDING_UPDATE")
    lab.agent.round()
    assert lab.reported() == {balancer.id: {"provisioning_status": "ACTIVE"}}


def test_deleted_parts(lab: Lab) -> None:
    balancer = lab.database.served()
    gone, monitor = balancer.pools[0].members[0], balancer.pools[0].health_monitor
    lab.show(balancer, "PENDING_UPDATE", **{_key(gone.id): "PENDING_DELETE", _key(monitor.id): "PENDING_DELETE"})
    balancer.pools[0].members.remove(gone)
    balancer.pools[0].health_monitor = None
    lab.write(balancer)
    lab.agent.round()
    found = lab.reported()
    assert found[gone.id] == found[monitor.id] == {"provisioning_status": "DELETED"}
    assert found[balancer.id] == {"provisioning_status": "ACTIVE"}
    assert found[balancer.pools[0].members[0].id] == {"operating_status": "NO_MONITOR"}


def test_deleted_pool(lab: Lab) -> None:
    """Octavia marks the pool alone. The load balancer's next changes are reported, too."""
    balancer = lab.database.served()
    pool = balancer.pools[0]
    lab.show(
        balancer,
        "PENDING_UPDATE",
        **{_key(pool.id): "PENDING_DELETE", _key(balancer.listeners[0].id): "PENDING_UPDATE"},
    )
    balancer.pools.remove(pool)
    balancer.listeners[0].default_pool = None
    lab.write(balancer)
    lab.agent.round()
    found = lab.reported()
    deleted = [pool.id, pool.health_monitor.id, *(m.id for m in pool.members)]
    assert [i for i, record in found.items() if record == {"provisioning_status": "DELETED"}] == [
        *(m.id for m in pool.members),
        pool.health_monitor.id,
        pool.id,
    ]
    assert found[balancer.listeners[0].id] == found[balancer.id] == {"provisioning_status": "ACTIVE"}
    assert len(found) == len(deleted) + 2
    lab.show(balancer)
    lab.fake.ready_nodes = 0
    lab.fake.touch(balancer.project_id, balancer.id)
    lab.agent.round()
    assert lab.reported()[balancer.id] == {"operating_status": "OFFLINE"}


def test_more_load_balancers_than_a_lease_is_enough_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    balancers = [lab.database.served() for _ in range(8)]
    for balancer in balancers:
        lab.write(balancer)
        lab.show(balancer, "PENDING_CREATE")
    read, slept = lab.agent.state.read, 0.0

    def read_slowly(identifier: str) -> Any:
        nonlocal slept
        slept += lab.fake.lease / 5
        return read(identifier)

    monkeypatch.setattr(lab.agent.state, "read", read_slowly)
    monkeypatch.setattr(agents, "time", SimpleNamespace(monotonic=lambda: slept, sleep=time.sleep))
    active: set[str] = set()
    for _ in range(8):
        lab.agent.round()
        for identifier in lab.reported():
            active.add(identifier)
            lab.show(next(b for b in balancers if b.id == identifier))
    assert active == {b.id for b in balancers}


def test_deleted_load_balancer(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.show(balancer, "PENDING_DELETE")
    lab.agent.round()
    found = lab.reported()
    assert len(found) == 6
    assert all(record == {"provisioning_status": "DELETED"} for record in found.values())


@pytest.mark.parametrize("status", ["PENDING_CREATE", "PENDING_DELETE"])
def test_repair_after_a_crash(status: str, lab: Lab) -> None:
    balancer = lab.database.served()
    if status == "PENDING_DELETE":
        lab.write(balancer)
    lab.show(balancer, status)
    for _ in range(2):
        lab.agent.round()
        time.sleep(0.1)
    assert bool(lab.fake.documents) is (status == "PENDING_CREATE")
    assert lab.reported()[balancer.id]["provisioning_status"] == ("ACTIVE" if status == "PENDING_CREATE" else "DELETED")


def test_load_balancer_that_is_refused_later(lab: Lab) -> None:
    balancer = lab.database.served()
    balancer.listeners[0].connection_limit = 5
    lab.show(balancer, "PENDING_UPDATE", **{_key(balancer.listeners[0].id): "PENDING_CREATE"})
    lab.agent.round()
    assert lab.reported() == {
        balancer.listeners[0].id: {"provisioning_status": "ERROR"},
        balancer.id: {"provisioning_status": "ACTIVE"},
    }


def test_member_dies_and_returns(lab: Lab) -> None:
    first, second, third = (lab.database.served() for _ in range(3))
    for balancer in (first, second, third):
        lab.write(balancer)
        lab.show(balancer)
    lab.agent.round()
    assert lab.reported() == {}
    for word in ("ERROR", "ONLINE"):
        for balancer in (first, second):
            lab.fake.set_member(balancer.project_id, balancer.id, "10.0.0.11:80", word)
        lab.agent.round()
        above = "DEGRADED" if word == "ERROR" else "ONLINE"
        expected: dict[str, dict[str, str]] = {}
        for balancer in (first, second):
            pool = balancer.pools[0]
            parents = (pool.id, balancer.listeners[0].id, balancer.id)
            expected |= {
                pool.members[0].id: {"operating_status": word},
                **{i: {"operating_status": above} for i in parents},
            }
        assert lab.reported() == expected, "the third one has changed, or one of the two hasn't"


def test_unknown_is_not_reported(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer)
    lab.agent.round()
    lab.fake.set_member(balancer.project_id, balancer.id, "10.0.0.11:80", "UNKNOWN")
    lab.agent.round()
    assert lab.reported() == {}


def test_full_backlog_is_retried(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer, "PENDING_CREATE")
    lab.database.failures = [exceptions.UpdateStatusError(fault_string="EAGAIN")] * 3
    lab.agent.round()
    assert lab.reported() == {balancer.id: {"provisioning_status": "ACTIVE"}}


def test_bad_object_does_not_hold_back_others(lab: Lab) -> None:
    bad, good = lab.database.served(), lab.database.served()
    for balancer in (bad, good):
        lab.write(balancer)
        lab.show(balancer, "PENDING_CREATE")
    lab.database.failures = [exceptions.UpdateStatusError(fault_string="x", status_object_id=bad.id)]
    lab.agent.round()
    assert lab.reported() == {good.id: {"provisioning_status": "ACTIVE"}}
    lab.show(good)
    time.sleep(0.1)
    lab.agent.round()
    assert lab.reported() == {bad.id: {"provisioning_status": "ACTIVE"}}


def test_one_agent_reports(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer, "PENDING_CREATE")
    second = lab.new_agent()
    lab.agent.round()
    assert lab.reported()
    second.round()
    assert lab.reported() == {}
    lab.fake.until = 0  # the first one has been killed
    second.round()
    assert lab.reported() == {balancer.id: {"provisioning_status": "ACTIVE"}}
    lab.agent.round()
    assert lab.reported() == {}


def test_restarted_agent_has_its_lease(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    for _ in range(2):
        lab.show(balancer, "PENDING_CREATE")
        agents.Agent(Client(), State(service.octavia()), lab.database.library, Neutron).round()
        assert lab.reported() == {balancer.id: {"provisioning_status": "ACTIVE"}}


def test_agent_of_a_killed_driver_agent_ends(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It isn't a child of it any more, and another one of the host may have the lease."""
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer, "PENDING_CREATE")
    parents = [-1, -2]
    monkeypatch.setattr(os, "getppid", lambda: parents.pop() if parents else -1)
    agents.run(threading.Event())
    monkeypatch.setattr(os, "getppid", lambda: -1)
    with pytest.raises(exceptions.DriverError, match="lease"):
        lab.agent.round()
    assert lab.reported() == {}


def test_stalled_agent_reports_nothing(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer, "PENDING_CREATE")
    lab.fake.lease = 0
    with pytest.raises(exceptions.DriverError, match="lease"):
        lab.agent.round()
    assert lab.reported() == {}


def test_statistics(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer)
    listener = balancer.listeners[0].id
    for counted, expected in ((7, 7), (-1, 0)):
        lab.fake.statistics[balancer.project_id, balancer.id] = {
            "listeners": [{"name": listener, "packets": 9, "bytes": counted, "newFlows": counted}]
        }
        lab.fake.touch(balancer.project_id, balancer.id)
        lab.agent.round()
        assert lab.database.statistics.pop() == {
            "listeners": [
                {
                    "id": listener,
                    "bytes_in": expected,
                    "total_connections": expected,
                    "bytes_out": 0,
                    "active_connections": 0,
                    "request_errors": 0,
                }
            ]
        }


def test_port_with_another_mac_address(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer)
    lab.agent.round()
    lab.cloud.at("10.0.0.11")["mac_address"] = "fa:16:3e:ff:ff:ff"
    override(ports_interval=1)
    lab.agent._followed = 0
    lab.agent.round()
    document, _ = lab.fake.documents[balancer.project_id, balancer.id]
    assert [m["mac"] for m in document["pools"][0]["members"]] == [
        "fa:16:3e:ff:ff:ff",
        lab.cloud.at("10.0.0.12")["mac_address"],
    ]


def test_run_survives_errors(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    exit_event = threading.Event()
    monkeypatch.setattr(exit_event, "wait", lambda _: exit_event.set())
    lab.fake.faults = [(500, {}, {})] * 50
    agents.run(exit_event)
    assert exit_event.is_set()


def test_conflict_does_not_hold_back_others(lab: Lab) -> None:
    """Another client has a document with the load balancer's name. octavia-lib's Conflict is no DriverError."""
    bad, good = lab.database.served(), lab.database.served()
    lab.write(good)
    foreign = {"name": bad.id, "forward": "nat", "address": "198.18.9.9", "listeners": [], "pools": []}
    lab.fake.documents[bad.project_id, bad.id] = (foreign, 1)
    for balancer in (bad, good):
        lab.show(balancer, "PENDING_CREATE")
    lab.agent.round()
    found = lab.reported()
    assert found[good.id] == {"provisioning_status": "ACTIVE"}
    assert found[bad.id] == {"provisioning_status": "ERROR"}


def test_unexpected_error_does_not_hold_back_others(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = lab.database.served(), lab.database.served()
    for balancer in (bad, good):
        lab.write(balancer)
        lab.show(balancer, "PENDING_CREATE")
    read = lab.agent.state.read

    def fail(identifier: str) -> Any:
        if identifier == bad.id:
            raise KeyError("x")
        return read(identifier)

    monkeypatch.setattr(lab.agent.state, "read", fail)
    lab.agent.round()
    assert lab.reported() == {good.id: {"provisioning_status": "ACTIVE"}}


@pytest.mark.parametrize(
    ("code", "final"),
    [(403, True), (404, True), (409, True), (500, True), (0, False), (412, False), (429, False), (503, False)],
)
def test_refusal_of_a_repair(code: int, final: bool, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = lab.database.served(), lab.database.served()
    lab.write(good)
    for balancer in (bad, good):
        lab.show(balancer, "PENDING_CREATE")
    put = lab.agent.api.put

    def refuse(*_: Any) -> None:
        raise Problem(code, "no")

    monkeypatch.setattr(lab.agent.api, "put", refuse)
    lab.agent.round()
    expected = {good.id: {"provisioning_status": "ACTIVE"}}
    assert lab.reported() == expected | ({bad.id: {"provisioning_status": "ERROR"}} if final else {})
    if final:
        return
    lab.show(good)
    monkeypatch.setattr(lab.agent.api, "put", put)
    for _ in range(2):
        time.sleep(0.1)
        lab.agent.round()
    assert lab.reported() == {bad.id: {"provisioning_status": "ACTIVE"}}


def test_repair_without_the_port_of_a_member(lab: Lab) -> None:
    balancer = lab.database.served()
    member = balancer.pools[0].members[0]
    del lab.cloud.ports[lab.cloud.at(member.ip_address)["id"]]
    lab.show(balancer, "PENDING_UPDATE", **{_key(member.id): "PENDING_CREATE"})
    lab.agent.round()
    error, active = {"provisioning_status": "ERROR"}, {"provisioning_status": "ACTIVE"}
    assert lab.reported() == {member.id: error, balancer.id: active}


def test_documents_of_others_with_the_mark(lab: Lab) -> None:
    """A user of the LB API may set the label. Octavia has no load balancer of the name, as after a purge."""
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer, "PENDING_CREATE")
    Client().put("other", "a.b", {"address": "198.18.9.9", "listeners": [], "pools": []}, None)
    lab.agent.round()
    assert lab.reported() == {balancer.id: {"provisioning_status": "ACTIVE"}}


def test_purged_load_balancer(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    lab.show(balancer)
    lab.agent.round()
    lab.cloud.octavia.clear()
    del lab.database.balancers[balancer.id]
    lab.fake.set_member(balancer.project_id, balancer.id, "10.0.0.11:80", "ERROR")
    lab.agent._known.clear()  # as after the agent's start
    lab.agent.round()
    assert lab.reported() == {}
    assert lab.agent._changed == {}


def test_deleted_monitor_unlocks_its_listener(lab: Lab) -> None:
    balancer = lab.database.served()
    pool, listener = balancer.pools[0], balancer.listeners[0]
    monitor, pool.health_monitor = pool.health_monitor, None
    lab.write(balancer)
    pool.health_monitor = monitor
    locked = {_key(listener.id): "PENDING_UPDATE", _key(pool.id): "PENDING_UPDATE"}
    lab.show(balancer, "PENDING_UPDATE", **locked, **{_key(monitor.id): "PENDING_DELETE"})
    lab.agent.round()
    found = {identifier: record.get("provisioning_status") for identifier, record in lab.reported().items()}
    assert found.pop(monitor.id) == "DELETED"
    assert {i for i, word in found.items() if word == "ACTIVE"} == {listener.id, pool.id, balancer.id}


def test_error_is_corrected(lab: Lab) -> None:
    balancer = lab.database.served()
    lab.write(balancer)
    listener = balancer.listeners[0]
    key = (balancer.project_id, balancer.id)
    bad = lab.fake.status(*key) | {"provisioningStatus": "ERROR"}
    bad["listeners"][0] |= {"provisioningStatus": "ERROR", "message": "port in use"}
    lab.fake.statuses[key] = bad
    for word in ("ERROR", "ACTIVE"):
        lab.show(balancer, "PENDING_UPDATE", **{_key(listener.id): "PENDING_UPDATE"})
        lab.fake.touch(*key)
        lab.agent.round()
        assert lab.reported()[listener.id]["provisioning_status"] == word
        lab.fake.statuses.clear()
