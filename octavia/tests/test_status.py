# SPDX-License-Identifier: Apache-2.0
"""Statuses to report, by the LB API's and Octavia's."""

from typing import Any

import pytest

from fairlead_octavia_provider import status
from fairlead_octavia_provider.tree import Part


def part(identifier: str, **fields: Any) -> Part:
    """Return a part as Octavia's API shows it, without a recorded operating status."""
    known = {"id": identifier, "provisioning_status": "ACTIVE", "operating_status": "", "admin_state_up": True}
    return known | fields


def answer(name: str, word: str = "ONLINE", provisioning: str = "ACTIVE", **fields: Any) -> Part:
    return {"name": name, "operatingStatus": word, "provisioningStatus": provisioning, **fields}


def balancer(members: int = 1) -> Part:
    pool = part("p", members=[part(f"m{at}", address="10.0.0.1", protocol_port=at) for at in range(members)])
    pool["healthmonitor"] = part("h")
    return part("b", listeners=[part("l", default_pool_id="p")], pools=[pool])


def served(word: str = "ONLINE", members: int = 1, **fields: Any) -> Part:
    names = [f"10.0.0.1:{at}" for at in range(members)]
    parts: dict[str, Any] = {
        "listeners": [answer("l", word if members else "OFFLINE")],
        "pools": [answer("p", word if members else "OFFLINE", members=[answer(name, word) for name in names])],
    }
    return answer("b", word, address="198.18.1.1", **parts, **fields)


def words(known: Part, *answers: Part) -> dict[str, str]:
    """Return the reported operating statuses."""
    found = status.message(known, list(answers))
    return {r["id"]: r["operating_status"] for kind in status.KINDS for r in found[kind] if "operating_status" in r}


def test_all_work() -> None:
    assert words(balancer(), served()) == dict.fromkeys(["m0", "h", "p", "l", "b"], "ONLINE")


def test_disabled() -> None:
    for disabled, offline in {"m0": {"m0"}, "h": {"h"}, "p": {"p", "m0"}, "l": {"l", "b"}, "b": {"b", "l"}}.items():
        known = balancer()
        for _, each, _ in status._parts(known):
            each["admin_state_up"] = each["id"] != disabled
        found = words(known, served())
        assert {i for i, word in found.items() if word == "OFFLINE"} == offline, disabled


def test_empty_parts() -> None:
    assert words(balancer(members=0), served(members=0)) == dict.fromkeys(["h", "p", "l", "b"], "ONLINE")
    unused = balancer()
    unused["listeners"] = []
    assert words(unused, served())["p"] == "OFFLINE"
    assert words(unused, served())["b"] == "ONLINE"
    assert words(unused, served(readyNodes=0))["b"] == "OFFLINE"


def test_unknown_keeps_the_last_word() -> None:
    assert set(words(balancer(), served("UNKNOWN"))) == {"h"}


def test_draining_and_without_monitor() -> None:
    for word in ("DRAINING", "NO_MONITOR"):
        assert words(balancer(), served(word))["m0"] == word


def test_worst_of_two_vips() -> None:
    assert words(balancer(), served(), served("ERROR"))["m0"] == "ERROR"


@pytest.mark.parametrize("message", ["", "its port is in use"])
def test_error_of_a_part(message: str) -> None:
    """A refused part is ERROR, its load balancer stays usable."""
    known = balancer()
    for _, each, _ in status._parts(known):
        each["provisioning_status"] = "PENDING_UPDATE"
    found = served(provisioning="ERROR")
    found["listeners"][0] |= {"provisioningStatus": "ERROR", "message": message}
    records = status.message(known, [found])
    assert records["listeners"][0]["provisioning_status"] == ("ERROR" if message else "ACTIVE")
    assert records["loadbalancers"][0]["provisioning_status"] == "ACTIVE"
    del found["address"]
    records = status.message(known, [found])
    assert records["loadbalancers"][0]["provisioning_status"] == "ERROR"


def test_waits_for_nodes() -> None:
    known = balancer() | {"provisioning_status": "PENDING_UPDATE"}
    found = status.message(known, [served(provisioning="PENDING_UPDATE")])
    assert "provisioning_status" not in found["loadbalancers"][0]


def test_incomplete() -> None:
    with pytest.raises(status.Incomplete):
        status.message(balancer(members=2), [served()])
    with pytest.raises(status.Incomplete):
        status.message(balancer(), [None])
    known = balancer()
    known["listeners"][0]["provisioning_status"] = "PENDING_DELETE"
    with pytest.raises(status.Incomplete):
        status.message(known, [served()])
