# SPDX-License-Identifier: Apache-2.0
"""fairlead-octavia-sync with the real LB API."""

import pytest

from fairlead_octavia_provider import service, sync, tree
from fairlead_octavia_provider.api import Client
from fairlead_octavia_provider.driver import Driver
from fairlead_octavia_provider.neutron import Neutron
from fairlead_octavia_provider.state import State
from tests.cloud import Cloud
from tests.database import Database


def test_sync(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    kept, lost, deleted = (database.served() for _ in range(3))
    lost.project_id = kept.project_id  # Octavia has no load balancer in the project of the deleted one
    for balancer in (kept, deleted):
        provider.loadbalancer_create(database.provider(balancer))
    foreign = database.balancer(project_id=kept.project_id)
    api.put(kept.project_id, "foreign", {"forward": "nat", "address": foreign.vip.ip_address}, None)
    del database.balancers[deleted.id], database.balancers[foreign.id]
    cloud.octavia["loadbalancers"] = [
        {"id": b.id, "project_id": b.project_id, "provider": "fairlead", "provisioning_status": "ACTIVE"}
        for b in (kept, lost)
    ]

    def run(dry: bool) -> list[str]:
        lines: list[str] = []
        assert sync.sync(api, State(service.octavia()), Neutron, tree.load, dry=dry, show=lines.append) == 0
        # The server has load balancers of other tests, too.
        return [line for line in lines if line.partition(":")[0] in (kept.id, lost.id, deleted.id)]

    assert run(dry=True) == run(dry=True) == [f"{lost.id}: differs", f"{deleted.id}: is not in Octavia"]
    assert run(dry=False) == [f"{lost.id}: written", f"{deleted.id}: deleted"]
    assert run(dry=False) == []
    assert api.get(kept.project_id, "foreign")
    # The MAC address of a member's port has changed.
    cloud.at("10.0.0.11")["mac_address"] = "fa:16:3e:ff:ff:ff"
    assert sorted(run(dry=False)) == sorted([f"{kept.id}: written", f"{lost.id}: written"])


def test_refused_load_balancers(provider: Driver, api: Client, database: Database, cloud: Cloud) -> None:
    """A load balancer that can't be written doesn't hold back others."""
    refused, conflict, lost = (database.served() for _ in range(3))
    refused.listeners[0].connection_limit = 5
    api.put(conflict.project_id, conflict.id, {"forward": "nat", "address": conflict.vip.ip_address}, None)
    cloud.octavia["loadbalancers"] = [
        {"id": b.id, "project_id": b.project_id, "provider": "fairlead", "provisioning_status": "ACTIVE"}
        for b in (refused, conflict, lost)
    ]
    lines: list[str] = []
    assert sync.sync(api, State(service.octavia()), Neutron, tree.load, dry=True, show=lines.append) == 1
    assert "connection_limit" in lines[0]
    assert "hasn't made" in lines[1]
    assert lines[2] == f"{lost.id}: differs"


@pytest.mark.usefixtures("conf")
def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sync.main(["--help"])
    assert "--yes" in capsys.readouterr().out
