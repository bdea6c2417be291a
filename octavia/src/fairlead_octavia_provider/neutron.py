# SPDX-License-Identifier: Apache-2.0
"""Neutron: ports and segments of members and VIPs, and members' permission to send from the VIP."""

import ipaddress
from dataclasses import dataclass
from typing import Any

from fairlead_octavia_provider import errors, service, translate

TAG = "fairlead-"
"""Prefix of the tag of a port with an address pair of ours. The load balancer's first digits and the VIP follow."""

_ATTEMPTS = 4
_TOGETHER = 32
"""Addresses in a request, whose URL has to fit into 4 KiB."""


@dataclass(frozen=True)
class Place:
    """A member's place in the networks. The tunnel end is set in VXLAN and Geneve networks only."""

    port: dict[str, Any]
    segment: dict[str, Any] | None
    tunnel_end: str | None = None


class Neutron:
    """Neutron with Octavia's service credentials, of one call of the driver: what was read isn't read again."""

    def __init__(self, known: service.Service | None = None) -> None:
        self._call = (known or service.neutron()).call
        self._read: dict[tuple[str, ...], Any] = {}
        self._ports: dict[tuple[str, str], list[dict[str, Any]]] = {}  # by subnet and address

    def segment(self, network_id: str) -> dict[str, Any] | None:
        """Return the segment of a network for the LB API; None for an untagged one."""
        network = self._get(f"/v2.0/networks/{network_id}", "network")
        if network is None:
            errors.refused(f"network {network_id}: Neutron has no such network")
        kind, number = network.get("provider:network_type"), network.get("provider:segmentation_id")
        if kind is None:
            errors.refused(f"network {network_id}: Octavia's account needs a role that may read provider attributes")
        if kind == "flat":
            return None
        if kind not in ("vlan", "vxlan", "geneve") or not number:
            errors.unsupported(f"network {network_id}: type {kind} isn't supported; flat, vlan, vxlan and geneve are")
        return {"type": kind, "id": int(number)}

    def member(self, address: str, subnet_id: str) -> Place:
        """Return where the member with an address in a subnet is, or refuse one that Neutron doesn't know."""
        subnet = self.subnet(address, subnet_id)
        self.look_up(subnet_id, [address])
        ports = self._ports[subnet_id, translate.canonical(address)]
        if len(ports) != 1:
            errors.refused(
                f"member {address}: Neutron has {len(ports)} ports with this address in subnet {subnet_id}, not one"
            )
        segment = self.segment(subnet["network_id"])
        return Place(ports[0], segment, self._tunnel_end(ports[0], segment))

    def look_up(self, subnet_id: str, addresses: list[str]) -> None:
        """Read the ports with these addresses in a subnet, many in a request."""
        wanted = {(subnet_id, translate.canonical(address)) for address in addresses}
        left = sorted(address for _, address in wanted - self._ports.keys())
        for at in range(0, len(left), _TOGETHER):
            some = left[at : at + _TOGETHER]
            self._ports |= {(subnet_id, address): [] for address in some}
            query = [f"subnet_id={subnet_id}", *(f"ip_address={address}" for address in some)]
            for port in self._list("/v2.0/ports", "ports", fixed_ips=query):
                for fixed in port["fixed_ips"]:
                    self._ports.get((fixed["subnet_id"], translate.canonical(fixed["ip_address"])), []).append(port)

    def subnet(self, address: str, subnet_id: str) -> dict[str, Any]:
        """Return the subnet of a member, or refuse an address that isn't in it."""
        subnet = self._get(f"/v2.0/subnets/{subnet_id}", "subnet")
        if subnet is None:
            errors.refused(f"member {address}: Neutron has no subnet {subnet_id}")
        if ipaddress.ip_address(address) not in ipaddress.ip_network(subnet["cidr"]):
            errors.unsupported(f"member {address}: the address isn't in its subnet {subnet_id} ({subnet['cidr']})")
        found: dict[str, Any] = subnet
        return found

    def ports_of(self, network_id: str) -> list[dict[str, Any]]:
        """Return all ports of a network."""
        return self._list("/v2.0/ports", "ports", network_id=network_id)

    def networks(self, kind: str, number: int) -> list[dict[str, Any]]:
        """Return the networks with a segment."""
        segment = {"provider:network_type": kind, "provider:segmentation_id": number}
        return self._list("/v2.0/networks", "networks", **segment)

    def allow(self, port: dict[str, Any], address: str, load_balancer_id: str) -> None:
        """Let a port send from an address, unless it may already, or has this address pair of somebody else."""
        tag, others = _tag(load_balancer_id, address), _others(port, address)
        foreign = len(others) < len(port["allowed_address_pairs"]) and not _tags_of(port, address)
        if foreign or not port.get("port_security_enabled", True):
            return
        for _ in range(_ATTEMPTS):
            # The tag comes first: a pair without it is never removed. It is one revision more of the port.
            if tag not in port["tags"]:
                self._call("PUT", f"/v2.0/ports/{port['id']}/tags/{tag}")
                port.update(tags=[*port["tags"], tag], revision_number=port["revision_number"] + 1)
            self._change_pairs(port, lambda p: [*_others(p, address), {"ip_address": address}])
            if tag in port["tags"]:  # else another call has removed it meanwhile
                return
        errors.failed(f"port {port['id']}: other clients keep removing its tag {tag}")

    def disallow(self, port: dict[str, Any], address: str, load_balancer_id: str) -> None:
        """Remove the address pair that allow has added, unless another load balancer needs it. Others stay."""
        tag = _tag(load_balancer_id, address)
        self._change_pairs(port, lambda p: _others(p, address) if _tags_of(p, address) == [tag] else None)
        self._call("DELETE", f"/v2.0/ports/{port['id']}/tags/{tag}", missing=True)
        # Another call may have added the pair since, or removed the tag that kept it.
        if body := self._call("GET", f"/v2.0/ports/{port['id']}", missing=True):
            self._change_pairs(body["port"], lambda p: None if _tags_of(p, address) else _others(p, address))

    def allowed(self, address: str, load_balancer_id: str) -> list[dict[str, Any]]:
        """Return the ports that have an address pair of ours for a VIP."""
        return self._list("/v2.0/ports", "ports", tags=_tag(load_balancer_id, address))

    def remove_vip_port(self, port_id: str, load_balancer_id: str) -> None:
        """Remove the port that Octavia has made for a load balancer that is refused; a user's own one stays."""
        body = self._call("GET", f"/v2.0/ports/{port_id}", missing=True)
        if body and (body["port"]["device_owner"], body["port"]["device_id"]) == ("Octavia", f"lb-{load_balancer_id}"):
            self._call("DELETE", f"/v2.0/ports/{port_id}", missing=True)

    def _change_pairs(self, port: dict[str, Any], change: Any) -> None:
        """Change the pairs of a port, unless they are to stay. If another client changes the port, try again."""
        path = f"/v2.0/ports/{port['id']}"
        for _ in range(_ATTEMPTS):
            pairs = change(port)
            if pairs is None or len(pairs) == len(port["allowed_address_pairs"]):
                return
            change_of_port = {"port": {"allowed_address_pairs": pairs}}
            revision = {"If-Match": f"revision_number={port['revision_number']}"}
            try:
                body = self._call("PUT", path, json=change_of_port, headers=revision, missing=True)
            except service.Changed:
                body = self._call("GET", path, missing=True)
            port.update(body["port"] if body else {"allowed_address_pairs": pairs})
        errors.failed(f"port {port['id']}: other clients keep changing its allowed address pairs")

    def _tunnel_end(self, port: dict[str, Any], segment: dict[str, Any] | None) -> str | None:
        """Return the address of the VTEP in front of a port, by the agent of its host."""
        if segment is None or segment["type"] == "vlan":
            return None
        host = port.get("binding:host_id")
        agents = self._get("/v2.0/agents", "agents", host=host) if host else []
        ends = [a["configurations"]["tunneling_ip"] for a in agents if a.get("configurations", {}).get("tunneling_ip")]
        if not ends:
            errors.refused(
                f"port {port['id']}: Neutron has no tunneling_ip of an agent on its host {host or '(unbound)'}"
            )
        return str(ends[0])

    def _get(self, path: str, key: str, **query: str) -> Any:
        place = (path, *query.values())
        if place not in self._read:
            body = self._call("GET", path, missing=True, params=query)
            self._read[place] = body[key] if body else None
        return self._read[place]

    def _list(self, path: str, key: str, **query: Any) -> list[dict[str, Any]]:
        return list(self._call("GET", path, params=query)[key])


def _tag(load_balancer_id: str, address: str) -> str:
    """Return the tag of an address pair, which is shorter than the 60 characters that Neutron allows."""
    return f"{TAG}{load_balancer_id[:8]}-{address}"


def _tags_of(port: dict[str, Any], address: str) -> list[str]:
    return [tag for tag in port["tags"] if tag.startswith(TAG) and tag.endswith(f"-{address}")]


def _others(port: dict[str, Any], address: str) -> list[dict[str, Any]]:
    return [pair for pair in port["allowed_address_pairs"] if pair["ip_address"] != address]
