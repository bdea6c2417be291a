# SPDX-License-Identifier: Apache-2.0
"""A server that behaves as the LB API, with the request for agents, and that fails as tests want."""

import itertools
import re
import threading
import time
from typing import Any
from urllib.parse import unquote

from tests.served import Query, Served

Document = dict[str, Any]

_PATH = re.compile(r"/v1/projects/([^/]+)/loadbalancers(?:/([^/]+))?(/status)?")


class LBAPI(Served):
    """Documents, statuses and statistics in memory."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], tuple[Document, int]] = {}
        self.statuses: dict[tuple[str, str], Document] = {}
        self.statistics: dict[tuple[str, str], Document] = {}
        self.versions: dict[tuple[str, str], int] = {}
        self.deleted: dict[tuple[str, str], int] = {}
        self.faults: list[tuple[int, dict[str, str], Any]] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.queries: list[dict[str, str]] = []
        self.holder, self.until, self.lease = "", 0.0, 300.0
        self.ready_nodes = 1
        self._version = itertools.count(1)
        self._lock = threading.Condition()

    def touch(self, project: str, name: str) -> None:
        """Have an object be among the changes."""
        with self._lock:
            self.versions[project, name] = next(self._version)
            self._lock.notify_all()

    def set_member(self, project: str, name: str, member: str, word: str) -> None:
        """Change the operating status of a member, of its pool and of its listeners."""
        status = self.status(project, name)
        for pool in status["pools"]:
            for each in pool["members"]:
                if each["name"] == member:
                    each["operatingStatus"] = word
            words = {m["operatingStatus"] for m in pool["members"]}
            pool["operatingStatus"] = (
                "ONLINE" if "ERROR" not in words else "ERROR" if words == {"ERROR"} else "DEGRADED"
            )
            for listener in status["listeners"]:
                if listener.get("pool") == pool["name"]:
                    listener["operatingStatus"] = pool["operatingStatus"]
        self.statuses[project, name] = status
        self.touch(project, name)

    def status(self, project: str, name: str) -> Document:
        """Return the status of an object: all of it works, unless a test has set it."""
        if (project, name) in self.statuses:
            return self.statuses[project, name]
        document, _ = self.documents[project, name]
        good = {"provisioningStatus": "ACTIVE", "operatingStatus": "ONLINE"}
        return {
            "name": name,
            **good,
            "address": document["address"],
            "listeners": [{"name": li["name"], **good, "pool": li.get("pool", "")} for li in document["listeners"]],
            "pools": [
                {
                    "name": p["name"],
                    **good,
                    "members": [
                        {
                            "name": f"{m['address']}:{m['port']}",
                            "provisioningStatus": "ACTIVE",
                            "operatingStatus": "ONLINE" if "healthCheck" in p else "NO_MONITOR",
                        }
                        for m in p["members"]
                    ],
                }
                for p in document["pools"]
            ],
        }

    def answer(self, method: str, path: str, query: Query, body: Any, headers: dict[str, str]) -> Any:
        """Implement Served."""
        one = {key: values[0] for key, values in query.items()}
        self.requests.append((method, path, headers))
        self.queries.append(one)
        if self.faults:
            return self.faults.pop(0)
        if path == "/v1/statuses":
            return self._changes(one)
        found = _PATH.fullmatch(path)
        assert found
        project, name, part = unquote(found[1]), unquote(found[2] or ""), found[3]
        if not name:
            return 200, {}, {"items": [d for (p, _), (d, _) in self.documents.items() if p == project]}
        known = self.documents.get((project, name))
        if method == "PUT":
            return self._put(project, name, body, headers, known)
        if known is None:
            return 404, {}, {"title": "Not Found", "status": 404}
        if method == "DELETE":
            del self.documents[project, name]
            self.statuses.pop((project, name), None)
            self.versions.pop((project, name), None)
            self.deleted[project, name] = next(self._version)
            return 204, {}, None
        return 200, {"ETag": f'"{known[1]}"'}, self.status(project, name) if part else known[0]

    def _put(self, project: str, name: str, body: Any, headers: dict[str, str], known: Any) -> Any:
        if (headers.get("If-None-Match") and known) or (
            headers.get("If-Match") and (known is None or headers["If-Match"] != f'"{known[1]}"')
        ):
            return 412, {}, {"title": "Precondition Failed", "status": 412}
        self.documents[project, name] = ({**body, "name": name}, next(self._version))
        self.touch(project, name)
        return (200 if known else 201), {}, body

    def _changes(self, query: dict[str, str]) -> Any:
        with self._lock:
            now = time.monotonic()
            if self.holder not in ("", query["holder"]) and now < self.until:
                return (
                    409,
                    {"Retry-After": "0.05"},
                    {"title": "Conflict", "status": 409, "detail": "another agent reports"},
                )
            self.holder, self.until = query["holder"], now + self.lease
            since = int(query.get("since", 0))
            self._lock.wait_for(lambda: any(v > since for v in self.versions.values()), float(query.get("wait", 0)))
            items = [
                {
                    "project": p,
                    "name": n,
                    "generation": str(self.documents[p, n][1]),
                    "readyNodes": self.ready_nodes,
                    "status": self.status(p, n),
                    "statistics": self.statistics.get((p, n)),
                }
                for (p, n), v in self.versions.items()
                if v > since
            ]
            items += [{"project": p, "name": n, "deleted": True} for (p, n), v in self.deleted.items() if v > since]
            newest = max([since, *self.versions.values(), *self.deleted.values()])
            return 200, {}, {"version": str(newest), "complete": since == 0, "lease": self.lease, "items": items}
