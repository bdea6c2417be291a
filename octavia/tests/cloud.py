# SPDX-License-Identifier: Apache-2.0
"""Neutron and Octavia's REST API over HTTP, as far as the provider uses them."""

import ipaddress
from typing import Any

from keystoneauth1 import adapter, noauth, session

from tests.served import Query, Served

VIP_NETWORK, VIP_SUBNET, VIP_SUBNET6 = "vip-network", "vip-subnet", "vip-subnet6"
MEMBER_NETWORK, MEMBER_SUBNET, MEMBER_SUBNET6 = "member-network", "member-subnet", "member-subnet6"
VLAN, VIP_VLAN = 101, 102


class Cloud(Served):
    """OpenStack's services on one port."""

    def __init__(self) -> None:
        self.networks = {
            VIP_NETWORK: _network(VIP_NETWORK, "vlan", VIP_VLAN),
            MEMBER_NETWORK: _network(MEMBER_NETWORK, "vlan", VLAN),
            "flat": _network("flat", "flat", None),
            "vxlan": _network("vxlan", "vxlan", 5001),
        }
        self.subnets = {
            VIP_SUBNET: _subnet(VIP_SUBNET, VIP_NETWORK, "198.18.0.0/15"),
            VIP_SUBNET6: _subnet(VIP_SUBNET6, VIP_NETWORK, "2001:db8::/32"),
            MEMBER_SUBNET: _subnet(MEMBER_SUBNET, MEMBER_NETWORK, "10.0.0.0/16"),
            MEMBER_SUBNET6: _subnet(MEMBER_SUBNET6, MEMBER_NETWORK, "fd00::/64"),
            "flat-subnet": _subnet("flat-subnet", "flat", "10.1.0.0/16"),
            "vxlan-subnet": _subnet("vxlan-subnet", "vxlan", "10.2.0.0/16"),
        }
        self.ports: dict[str, dict[str, Any]] = {}
        self.agents: list[dict[str, Any]] = []
        self.octavia: dict[str, list[dict[str, Any]]] = {}
        self.requests: list[tuple[str, str]] = []
        self.broken: int | None = None
        for at in range(11, 21):
            self.port(f"10.0.0.{at}", MEMBER_SUBNET)
        self.port("fd00::11", MEMBER_SUBNET6)

    def port(self, address: str, subnet: str, **fields: Any) -> dict[str, Any]:
        """Add a port with an address."""
        at = len(self.ports)
        port = {
            "id": f"port-{at}",
            "mac_address": f"fa:16:3e:00:00:{at:02x}",
            "device_owner": "compute:nova",
            "device_id": "vm",
            "network_id": self.subnets[subnet]["network_id"],
            "fixed_ips": [{"ip_address": address, "subnet_id": subnet}],
            "allowed_address_pairs": [],
            "tags": [],
            "port_security_enabled": True,
            "revision_number": 1,
            "binding:host_id": "compute1",
            **fields,
        }
        self.ports[port["id"]] = port
        return port

    def at(self, address: str) -> dict[str, Any]:
        """Return the port with an address."""
        return next(p for p in self.ports.values() if p["fixed_ips"][0]["ip_address"] == address)

    def pairs(self) -> set[tuple[str, str]]:
        """Return all allowed address pairs: a member's address and the VIP."""
        return {
            (p["fixed_ips"][0]["ip_address"], pair["ip_address"])
            for p in self.ports.values()
            for pair in p["allowed_address_pairs"]
        }

    def adapter(self) -> adapter.Adapter:
        """Return a client of keystoneauth1 without authentication."""
        return adapter.Adapter(session=session.Session(auth=noauth.NoAuth()), endpoint_override=self.url)

    def answer(self, method: str, path: str, query: Query, body: Any, headers: dict[str, str]) -> Any:
        """Implement Served."""
        code, found = self._answer(method, path, query, body, headers.get("If-Match"))
        return code, {}, found

    def _answer(self, method: str, path: str, query: Query, body: Any, match: str | None) -> tuple[int, Any]:
        self.requests.append((method, path))
        if self.broken:
            return self.broken, {}
        root, _, rest = path.strip("/").partition("/")
        if root == "v2":
            return self._octavia(rest.removeprefix("lbaas/"), query)
        parts = rest.split("/")
        if parts[0] == "agents":
            return 200, {"agents": [a for a in self.agents if a["host"] == query["host"][0]]}
        kind: dict[str, dict[str, Any]] = getattr(self, parts[0])
        if len(parts) == 1:
            return 200, {parts[0]: [found for found in kind.values() if _matches(found, query)]}
        found = kind.get(parts[1])
        if found is None:
            return 404, {"NeutronError": {"message": f"{parts[1]} not found"}}
        if parts[2:3] == ["tags"]:
            return self._tag(method, found, parts[3])
        if method == "DELETE":
            del kind[parts[1]]
            return 204, None
        if method == "PUT":
            if match is not None and match != f"revision_number={found['revision_number']}":
                return 412, {}
            found.update(body["port"])
            found["revision_number"] += 1
        return 200, {parts[0].removesuffix("s"): found}

    def _tag(self, method: str, port: dict[str, Any], tag: str) -> tuple[int, Any]:
        assert len(tag) <= 60
        port["revision_number"] += (tag in port["tags"]) is (method == "DELETE")
        if method == "PUT":
            port["tags"] = sorted({*port["tags"], tag})
            return 201, None
        port["tags"] = [t for t in port["tags"] if t != tag]
        return 204, None

    def _octavia(self, path: str, query: Query) -> tuple[int, Any]:
        """Answer lists by filters, two objects a page, and single objects."""
        kind, _, identifier = path.partition("/")
        if identifier.endswith("/members"):
            pool = identifier.removesuffix("/members")
            return 200, {"members": [m for m in self.octavia.get("members", []) if m["pool_id"] == pool]}
        objects = self.octavia.get(kind, [])
        if identifier:
            found = [o for o in objects if o["id"] == identifier or o.get("name") == identifier]
            return (200, {kind.removesuffix("s"): found[0]}) if found else (404, {})
        markers = query.pop("marker", [])
        found = [
            o
            for o in objects
            if all(str(o.get(k.replace("load_balancer_id", "loadbalancer_id"))) == v[0] for k, v in query.items())
        ]
        start = next((at + 1 for at, o in enumerate(found) if [o["id"]] == markers), 0)
        page = found[start : start + 2]
        text = "&".join(f"{k}={v[0]}" for k, v in query.items())
        links = (
            [{"rel": "next", "href": f"{self.url}/{path}?{text}&marker={page[-1]['id']}"}] if found[start + 2 :] else []
        )
        return 200, {kind: page, f"{kind}_links": links}


def _network(identifier: str, kind: str, number: int | None) -> dict[str, Any]:
    return {"id": identifier, "provider:network_type": kind, "provider:segmentation_id": number}


def _subnet(identifier: str, network: str, cidr: str) -> dict[str, Any]:
    return {"id": identifier, "network_id": network, "cidr": cidr}


def _matches(found: dict[str, Any], query: Query) -> bool:
    for key, values in query.items():
        if key == "fixed_ips":
            # One of the fixed addresses has one of the values of each name, as text.
            wanted = [tuple(v.split("=", 1)) for v in values]
            for name in {name for name, _ in wanted}:
                if not any(
                    (name, str(ipaddress.ip_address(f[name]) if name == "ip_address" else f[name])) in wanted
                    for f in found["fixed_ips"]
                ):
                    return False
        elif key == "tags":
            if values[0] not in found["tags"]:
                return False
        elif str(found.get(key)) != values[0]:
            return False
    return True
