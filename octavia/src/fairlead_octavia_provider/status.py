# SPDX-License-Identifier: Apache-2.0
"""The statuses to report to Octavia: those that differ from the recorded ones, by the LB API's status."""

from collections.abc import Iterable, Iterator
from typing import Any

from fairlead_octavia_provider import translate
from fairlead_octavia_provider.state import PENDING
from fairlead_octavia_provider.tree import Part

Message = dict[str, list[dict[str, str]]]
"""Records by kinds of objects, as octavia-lib's update_loadbalancer_status takes them."""

KINDS = ("members", "healthmonitors", "pools", "listeners", "loadbalancers")

OPERATING = ("ONLINE", "OFFLINE", "DEGRADED", "ERROR", "DRAINING", "NO_MONITOR")
"""Octavia's words. A message with any other one fails as a whole."""

_WORST = ("ERROR", "DEGRADED", "UNKNOWN", "DRAINING", "NO_MONITOR", "ONLINE", "OFFLINE")


class Incomplete(Exception):
    """The LB API lacks a part that Octavia has, or has one that Octavia is deleting: it has to be written."""


def message(known: Part, answers: list[Part | None]) -> Message:
    """Return the statuses of a load balancer that have to be reported.

    known is Octavia's view (state.State.read), answers are the LB API's statuses of its documents, in the order of
    VIPs; None for one that isn't there.
    """
    found: Message = {kind: [] for kind in KINDS}
    if known["provisioning_status"] == "PENDING_DELETE":
        if any(answer is not None for answer in answers):
            raise Incomplete
        for kind, part, _ in _parts(known):
            found[kind].append({"id": part["id"], "provisioning_status": "DELETED"})
        return found
    present = [answer for answer in answers if answer is not None]
    if len(present) < len(answers):
        raise Incomplete
    view = _View(known, present)
    for kind, part, pool in _parts(known):
        record = view.record(kind, part, pool)
        if len(record) > 1:
            found[kind].append(record)
    return found


def merge(messages: Iterable[Message]) -> Message:
    """Return one message of several."""
    found: Message = {kind: [] for kind in KINDS}
    for each in messages:
        for kind in KINDS:
            found[kind] += each[kind]
    return found


def errors_of(known: Part) -> Message:
    """Return ERROR for the pending parts of a load balancer that can't be written, which itself stays usable."""
    found: Message = {kind: [] for kind in KINDS}
    for kind, part, _ in _parts(known):
        if part["provisioning_status"] not in PENDING:
            continue
        usable = kind == "loadbalancers" and part["provisioning_status"] == "PENDING_UPDATE"
        found[kind].append({"id": part["id"], "provisioning_status": "ACTIVE" if usable else "ERROR"})
    return found


def record_reported(known: Part, reported: Message) -> None:
    """Put reported statuses into Octavia's view, which then has no deleted parts."""
    records = {record["id"]: record for kind in KINDS for record in reported[kind]}
    for _, part, _ in _parts(known):
        record = records.get(part["id"], {})
        part.update({k: v for k, v in record.items() if k != "id"})

    def left(parts: list[Part]) -> list[Part]:
        return [part for part in parts if part["provisioning_status"] != "DELETED"]

    known["listeners"], known["pools"] = left(known["listeners"]), left(known["pools"])
    for pool in known["pools"]:
        pool["members"] = left(pool["members"])
        if pool.get("healthmonitor") and not left([pool["healthmonitor"]]):
            pool["healthmonitor"] = None


def statistics(answer: Part) -> list[dict[str, Any]]:
    """Return the statistics of the listeners of a document: bytes_in and total_connections are real, others 0."""
    return [
        {
            "id": listener["name"],
            "bytes_in": max(listener["bytes"], 0),
            "total_connections": max(listener["newFlows"], 0),
            "bytes_out": 0,
            "active_connections": 0,
            "request_errors": 0,
        }
        for listener in answer.get("listeners") or []
    ]


def _parts(known: Part) -> Iterator[tuple[str, Part, Part | None]]:
    """Yield kind, part and pool, children first, as Octavia processes a message."""
    for pool in known["pools"]:
        for member in pool["members"]:
            yield "members", member, pool
        if pool.get("healthmonitor"):
            yield "healthmonitors", pool["healthmonitor"], pool
    for pool in known["pools"]:
        yield "pools", pool, pool
    for listener in known["listeners"]:
        yield "listeners", listener, None
    yield "loadbalancers", known, None


class _View:
    """The LB API's statuses of a load balancer, of all its VIPs."""

    def __init__(self, known: Part, answers: list[Part]) -> None:
        self.known = known
        self.ready = all(answer.get("readyNodes", 1) for answer in answers)
        self.address = all(answer.get("address") for answer in answers)
        self.waiting = any(answer["provisioningStatus"] in PENDING for answer in answers)
        self.listeners = _by_name(answer["listeners"] for answer in answers)
        self.pools = _by_name(answer["pools"] for answer in answers)
        self.members = {pool: _by_name(p["members"] for p in parts) for pool, parts in self.pools.items()}
        self.operating: dict[str, str] = {}

    def record(self, kind: str, part: Part, pool: Part | None) -> dict[str, str]:
        """Return what is to be reported of a part; only its ID if nothing is."""
        record = {"id": part["id"]}
        there = self._there(kind, part, pool)
        # A pool is deleted with its parts, which don't have its provisioning status.
        if "PENDING_DELETE" in (part["provisioning_status"], (pool or part)["provisioning_status"]):
            if there and kind != "healthmonitors":
                raise Incomplete
            return record | {"provisioning_status": "DELETED"}
        if there is None:
            raise Incomplete
        operating = getattr(self, "_" + kind)(part, pool, there)
        self.operating[part["id"]] = operating
        if part["provisioning_status"] in PENDING and not self.waiting:
            record["provisioning_status"] = self._provisioning(there)
        if operating in OPERATING and operating != part["operating_status"]:
            record["operating_status"] = operating
        return record

    def _there(self, kind: str, part: Part, pool: Part | None) -> list[Part] | None:
        """Return the LB API's statuses of a part; those of the pool for a monitor. None if there are none."""
        if kind == "loadbalancers":
            return []
        if kind == "listeners":
            return self.listeners.get(part["id"])
        assert pool is not None
        if kind == "members":
            name = translate.member_name(part["address"], part["protocol_port"])
            return self.members.get(pool["id"], {}).get(name)
        return self.pools.get(pool["id"])

    def _provisioning(self, there: list[Part]) -> str:
        """Return ERROR for a part that the LB API has refused, and for all parts if there is no address."""
        refused = any(s["provisioningStatus"] == "ERROR" and s.get("message") for s in there)
        return "ERROR" if refused or not self.address else "ACTIVE"

    def _members(self, part: Part, pool: Part, there: list[Part]) -> str:
        return _worst(there) if part["admin_state_up"] and pool["admin_state_up"] else "OFFLINE"

    def _healthmonitors(self, part: Part, _pool: Part, _there: list[Part]) -> str:
        return "ONLINE" if part["admin_state_up"] else "OFFLINE"

    def _pools(self, part: Part, _pool: Part, there: list[Part]) -> str:
        used = any(li.get("default_pool_id") == part["id"] for li in self.known["listeners"])
        if not part["admin_state_up"] or not used or not self.ready:
            return "OFFLINE"
        return _worst(there) if part["members"] else "ONLINE"

    def _listeners(self, part: Part, _pool: Part | None, there: list[Part]) -> str:
        if not part["admin_state_up"] or not self.known["admin_state_up"] or not self.ready:
            return "OFFLINE"
        pools = [p for p in self.known["pools"] if p["id"] == part.get("default_pool_id")]
        pools = [p for p in pools if p["provisioning_status"] != "PENDING_DELETE"]
        if not pools or (pools[0]["admin_state_up"] and not pools[0]["members"]):
            return "ONLINE"
        return _worst(there)

    def _loadbalancers(self, part: Part, _pool: Part | None, _there: list[Part]) -> str:
        if not part["admin_state_up"] or not self.ready:
            return "OFFLINE"
        if not self.address:
            return "ERROR"
        parts = [self.operating[li["id"]] for li in part["listeners"] if li["id"] in self.operating]
        working = [word for word in parts if word != "OFFLINE"]
        if not parts or not working:
            return "OFFLINE" if parts else "ONLINE"
        if "ERROR" in working:
            return "ERROR" if set(working) == {"ERROR"} else "DEGRADED"
        return next((word for word in ("DEGRADED", "UNKNOWN") if word in working), "ONLINE")


def _by_name(lists: Iterable[list[Part]]) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for parts in lists:
        for part in parts:
            found.setdefault(part["name"], []).append(part)
    return found


def _worst(there: list[Part]) -> str:
    """Return the worst operating status of a part at all VIPs."""
    words = [status["operatingStatus"] for status in there]
    return next((word for word in _WORST if word in words), "UNKNOWN")
