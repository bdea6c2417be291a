# SPDX-License-Identifier: Apache-2.0
"""The load balancers of the provider as Octavia's REST API shows them, with the statuses that it has recorded."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fairlead_octavia_provider import options, service
from fairlead_octavia_provider.tree import Part

PENDING = ("PENDING_CREATE", "PENDING_UPDATE", "PENDING_DELETE")

_ROOT = "/v2/lbaas"


class State:
    """Reads Octavia's REST API with service credentials."""

    def __init__(self, known: service.Service | None = None) -> None:
        self._service = known or service.octavia()

    def pending(self) -> list[str]:
        """Return the IDs of load balancers that Octavia has locked."""
        return [lb["id"] for status in PENDING for lb in self.load_balancers(provisioning_status=status)]

    def load_balancers(self, **query: str) -> Iterator[Part]:
        """Yield the provider's load balancers."""
        yield from self._list("loadbalancers", provider=options.register().provider_name, **query)

    def read(self, load_balancer_id: str) -> Part | None:
        """Return a load balancer with its listeners, pools, members and monitors; None if there is none."""
        body = self._call(f"/loadbalancers/{load_balancer_id}", missing=True)
        if body is None:
            return None
        found: Part = body["loadbalancer"]
        if found["provisioning_status"] == "DELETED":
            return None
        found["listeners"] = list(self._list("listeners", load_balancer_id=load_balancer_id))
        found["pools"] = list(self._list("pools", loadbalancer_id=load_balancer_id))
        for pool in found["pools"]:
            pool["members"] = list(self._list(f"pools/{pool['id']}/members")) if pool.get("members") else []
            pool["healthmonitor"] = self._monitor(pool.get("healthmonitor_id"))
        return found

    def _monitor(self, identifier: str | None) -> Part | None:
        body = self._call(f"/healthmonitors/{identifier}", missing=True) if identifier else None
        return body["healthmonitor"] if body else None

    def _list(self, path: str, **query: str) -> Iterator[Part]:
        """Yield all objects of a list, page by page."""
        key = path.rpartition("/")[2]
        while True:
            body = self._call(f"/{path}", params=query)
            yield from body[key]
            following = [link["href"] for link in body.get(f"{key}_links") or [] if link["rel"] == "next"]
            if not following:
                return
            query = dict(parse_qsl(urlsplit(following[0]).query))

    def _call(self, path: str, **kwargs: Any) -> Any:
        return self._service.call("GET", _ROOT + path, **kwargs)
