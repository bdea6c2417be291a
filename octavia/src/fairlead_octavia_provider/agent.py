# SPDX-License-Identifier: Apache-2.0
"""The provider agent: reports status and statistics to Octavia. octavia-driver-agent runs it as a process.

One agent reports at a time: the LB API grants the lease. A round waits for changes, reads what Octavia has recorded,
and sends the differences as one message. What isn't reported is found again by the next round, after any crash.
"""

import math
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from octavia_lib.api.drivers import exceptions as lib
from oslo_log import log

from fairlead_octavia_provider import errors, follow, options, status, translate, tree
from fairlead_octavia_provider.api import Client, Problem
from fairlead_octavia_provider.balancer import Balancer
from fairlead_octavia_provider.neutron import Neutron
from fairlead_octavia_provider.state import PENDING, State
from fairlead_octavia_provider.tree import Part

LOG = log.getLogger(__name__)

_ATTEMPTS = 6
_PAUSE = 0.1
_MOST = 500
"""Load balancers of a round whose statuses have changed. The others follow in the next ones."""


def run(exit_event: Any) -> None:
    """Report until the driver agent ends, or is killed. It starts no agent that returns, so errors are logged."""
    agent: Agent | None = None
    parent = os.getppid()
    while not exit_event.is_set() and os.getppid() == parent:
        try:
            agent = agent or Agent()
            agent.round()
        except Exception:
            LOG.exception("Reporting to Octavia failed, retrying")
            exit_event.wait(1)


class Agent:
    """Reports to Octavia what the LB API says."""

    def __init__(
        self,
        api: Client | None = None,
        state: State | None = None,
        library: Callable[[], Any] = tree.library,
        neutron: Callable[[], Neutron] = Neutron,
    ) -> None:
        self.conf = options.register()
        self.api, self.state = api or Client(), state or State()
        self.library, self.neutron = library, neutron
        # A host has one agent, which goes on with its lease after a restart.
        self.holder, self._parent = socket.gethostname(), os.getppid()
        self.version = ""
        self._behind = False
        self._lease = self._half = self._searched = self._followed = 0.0
        self._changed: dict[str, None] = {}  # IDs of load balancers with changed statuses, in their order
        self._answers: dict[str, Part] = {}  # items of changes, by names of documents
        self._known: dict[str, Part] = {}  # Octavia's view of load balancers that were reported before

    def round(self) -> None:
        """Wait for changes, and report them and all that is pending. Nothing is done while another agent reports."""
        asked = time.monotonic()
        try:
            answer = self.api.changes(self.holder, self.version, self._wait(asked))
        except Problem as problem:
            if problem.status != 409:
                raise
            self._stand_by(problem.retry_after)
            return
        self._lease, self._half = asked + answer["lease"], asked + answer["lease"] / 2
        self._take(answer)
        pending = self._pending()
        others = [identifier for identifier in self._changed if identifier not in pending][:_MOST]
        self._behind = self._report([*pending, *others]) and bool(self._changed)
        self._report_statistics(answer["items"])
        self.version = answer["version"]
        self._follow_ports()

    def _wait(self, now: float) -> int:
        """Return how long the LB API may wait for changes: whole seconds, none while a round had too many of them."""
        if self._behind:
            return 0
        return max(math.ceil(float(self._searched + self.conf.pending_interval - now)), 1)

    def _stand_by(self, pause: float) -> None:
        """Forget all, as another agent reports now."""
        self.version, self._lease, self._searched = "", 0, 0
        for forgotten in (self._changed, self._answers, self._known):
            forgotten.clear()
        time.sleep(min(max(pause, 0.1), 5))

    def _take(self, answer: Part) -> None:
        """Take over an answer. A complete one has all load balancers."""
        if answer.get("complete"):
            self._answers.clear()
            self._known.clear()
        for item in answer["items"]:
            identifier = translate.load_balancer_of(item["name"])
            before = self._answers.get(item["name"])
            if item.get("deleted"):
                self._answers.pop(item["name"], None)
            else:
                self._answers[item["name"]] = item
            if before is None or before.get("generation") != item.get("generation"):
                self._known.pop(identifier, None)
            if "status" in item:
                self._changed[identifier] = None

    def _pending(self) -> list[str]:
        """Return the load balancers that Octavia has locked. A written one is pending, so changes start a search."""
        now = time.monotonic()
        if now < self._searched + self.conf.pending_interval and not self._changed:
            return []
        self._searched = now
        pending = self.state.pending()
        for identifier in pending:
            self._known.pop(identifier, None)
        return pending

    def _report(self, identifiers: list[str]) -> bool:
        """Send statuses as one message: of as many load balancers as half of the lease is enough for, say if sent."""
        messages = {}
        for at, identifier in enumerate(identifiers):
            if at and time.monotonic() >= self._half:
                identifiers = identifiers[:at]
                break
            try:
                messages[identifier] = self._message(identifier)
            except Exception as error:
                unexpected = not isinstance(error, (Problem, lib.DriverError))
                LOG.warning("Load balancer %s isn't reported, retrying: %s", identifier, error, exc_info=unexpected)
        sent = self._send(messages)
        for identifier in identifiers:
            if identifier in sent:
                if identifier in self._known:
                    status.record_reported(self._known[identifier], messages[identifier])
                self._changed.pop(identifier, None)
            else:
                self._known.pop(identifier, None)
        return len(sent) == len(identifiers)

    def _message(self, identifier: str) -> status.Message:
        """Return the message of a load balancer: by its current status if it is pending, else by the last change."""
        known = self._known.get(identifier) or self.state.read(identifier)
        if known is None:
            return status.merge([])  # it has been deleted
        pending = known["provisioning_status"] in PENDING
        self._known[identifier] = known
        names = translate.names({"loadbalancer_id": identifier, "additional_vips": known.get("additional_vips")})
        # Octavia's view comes first: the LB API's is at least as new.
        answers = [self._answer(known["project_id"], name, pending) for name in names]
        try:
            return status.message(known, answers)
        except status.Incomplete:
            self._known.pop(identifier, None)
            return self._repair(identifier, known) if pending else status.merge([])

    def _answer(self, project: str, name: str, pending: bool) -> Part | None:
        """Return the LB API's status of a document with the number of ready nodes, which only changes have."""
        item = self._answers.get(name, {})
        found: Part | None = self.api.status(project, name) if pending else item.get("status")
        return found and {"readyNodes": item.get("readyNodes", 1), **found}

    def _repair(self, identifier: str, known: Part) -> status.Message:
        """Write a load balancer that Octavia has and the LB API lacks, as after a crash; or delete it."""
        found = tree.load(identifier)
        if found is None:
            return status.merge([])
        try:
            balancer = Balancer(self.api, self.neutron(), found)
            if known["provisioning_status"] == "PENDING_DELETE":
                balancer.remove()
            else:
                _drop_deleted(found, known)
                balancer.write()
        except errors.FINAL as error:
            LOG.error("Load balancer %s is refused: %s", identifier, error)
            return status.errors_of(known)
        return status.merge([])

    def _send(self, messages: dict[str, status.Message]) -> set[str]:
        """Send messages as one, without those that Octavia refuses, and return whose have been sent."""
        left = dict(messages)
        for attempt in range(_ATTEMPTS):
            whole = {kind: records for kind, records in status.merge(left.values()).items() if records}
            if not whole:
                return set(left)
            self._check_lease()
            try:
                self.library().update_loadbalancer_status(whole)
                return set(left)
            except lib.UpdateStatusError as error:
                records = {i: [r["id"] for kind in each.values() for r in kind] for i, each in left.items()}
                bad = [i for i, found in records.items() if error.status_object_id in found]
                place = f"{error.status_object} {error.status_object_id}"
                LOG.warning("Octavia refused a status of %s, retrying: %s", place, error.fault_string)
                for identifier in bad:
                    del left[identifier]
                if not bad:
                    time.sleep(_PAUSE * 2**attempt)
        return set()

    def _report_statistics(self, items: list[Part]) -> None:
        """Send the statistics of all listeners as one message. Counters that are lost are in the next one."""
        records = self._statistics(items)
        for attempt in range(_ATTEMPTS if records else 0):
            self._check_lease()
            try:
                self.library().update_listener_statistics({"listeners": records})
                return
            except lib.UpdateStatisticsError as error:
                LOG.warning("Octavia refused statistics, retrying: %s", error.fault_string)
                time.sleep(_PAUSE * 2**attempt)

    def _statistics(self, items: list[Part]) -> list[dict[str, Any]]:
        """Return the records of the load balancers of changed items: sums over their VIPs."""
        identifiers = {translate.load_balancer_of(item["name"]) for item in items if item.get("statistics")}
        sums: dict[str, dict[str, Any]] = {}
        for name, item in self._answers.items():
            if translate.load_balancer_of(name) in identifiers and item.get("statistics"):
                for record in status.statistics(item["statistics"]):
                    known = sums.setdefault(record["id"], dict.fromkeys(record, 0) | {"id": record["id"]})
                    known.update({key: known[key] + value for key, value in record.items() if key != "id"})
        return list(sums.values())

    def _follow_ports(self) -> None:
        if time.monotonic() >= self._followed + self.conf.ports_interval:
            projects = {item["project"] for item in self._answers.values()}
            self._followed = time.monotonic()
            follow.follow(self.api, self.neutron(), sorted(projects))

    def _check_lease(self) -> None:
        """Fail once another agent may report, whose statuses are newer: also one of this host, after a kill."""
        if time.monotonic() >= self._lease or os.getppid() != self._parent:
            errors.failed("the lease of reporting is over")


def _drop_deleted(found: Part, known: Part) -> None:
    """Remove the parts that Octavia is deleting from a tree."""

    def deleted(parts: list[Part]) -> list[str]:
        return [p["id"] for p in parts if p["provisioning_status"] == "PENDING_DELETE"]

    for identifier in deleted(known["listeners"]):
        tree.drop(found["listeners"], "listener_id", identifier)
    for pool in known["pools"]:
        if pool["provisioning_status"] == "PENDING_DELETE":
            tree.drop_pool(found, pool["id"])
            continue
        wanted = tree.pool_of(found, pool["id"])
        for identifier in deleted(pool["members"]):
            tree.drop(wanted["members"], "member_id", identifier)
        if pool.get("healthmonitor") and deleted([pool["healthmonitor"]]):
            wanted["healthmonitor"] = None
