# SPDX-License-Identifier: Apache-2.0
"""Neutron: ports and segments of members and VIPs, and members' permission to send from the VIP."""

import ipaddress
from dataclasses import dataclass
from typing import Any

from fairlead_octavia_provider import errors, service

TAG = "fairlead-"
"""Prefix of the tag of a port with an address pair of ours. The load balancer's first digits and the VIP follow."""

_ATTEMPTS = 4


@dataclass(frozen=True)
class Place:
    """A member's place in the networks. The tunnel end is set in VXLAN and Geneve networks only."""

    port_id: str
    mac: str
    segment: dict[str, Any] | None
    tunnel_end: str | None = None


class Neutron:
    """Neutron with Octavia's service credentials, of one call of the driver: what was read isn't read again."""

    def __init__(self, known: service.Service | None = None) -> None:
        self._service = known
        self._read: dict[str, Any] = {}

    def segment(self, network_id: str) -> dict[str, Any] | None:
        """Return the segment of a network for the LB API; None for an untagged one."""
        network = self._get(f"/v2.0/networks/{network_id}", "network")
        if network is None:
            errors.refused(f"network {network_id}: Neutron has no such network")
        kind, number = network.get("provider:network_type"), network.get("provider:segmentation_id")
        if kind is None:
            errors.refused(
                f"network {network_id}: Neutron shows no provider attributes: Octavia's account needs a role "
                "that may read them"
            )
        if kind == "flat":
            return None
        if kind not in ("vlan", "vxlan", "geneve") or not number:
            errors.unsupported(f"network {network_id}: type {kind} isn't supported; flat, vlan, vxlan and geneve are")
        return {"type": kind, "id": int(number)}

    def member(self, address: str, subnet_id: str) -> Place:
        """Return where the member with an address in a subnet is, or refuse one that Neutron doesn't know."""
        subnet = self.subnet(address, subnet_id)
        ports = [
            p
            for p in self._list(
                "/v2.0/ports",
                "ports",
                network_id=subnet["network_id"],
                fixed_ips=[f"ip_address={address}", f"subnet_id={subnet_id}"],
            )
            if any(_same(f, address, subnet_id) for f in p["fixed_ips"])
        ]
        if len(ports) != 1:
            errors.refused(
                f"member {address}: Neutron has {len(ports)} ports with this address in subnet {subnet_id}, not one"
            )
        segment = self.segment(subnet["network_id"])
        return Place(ports[0]["id"], ports[0]["mac_address"], segment, self._tunnel_end(ports[0], segment))

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

    def allow(self, port_id: str, address: str, load_balancer_id: str) -> bool:
        """Let a port send from an address. False if it may already, or is an address pair of somebody else."""
        port = self._port(port_id)
        if port is None or not port.get("port_security_enabled", True):
            return False
        tag, tags = _tag(load_balancer_id, address), port.get("tags", [])
        paired = any(p["ip_address"] == address for p in port["allowed_address_pairs"])
        if (tag in tags and paired) or (paired and not _tags_of(tags, address)):
            return False
        # The tag comes first: a pair without it is never removed.
        self._call("PUT", f"/v2.0/ports/{port_id}/tags/{tag}")
        if not paired:
            self._change_pairs(port_id, lambda pairs: [*pairs, {"ip_address": address}])
        return True

    def disallow(self, port_id: str, address: str, load_balancer_id: str) -> None:
        """Remove the address pair that allow has added, unless another load balancer needs it. Others stay."""
        port = self._port(port_id)
        tag = _tag(load_balancer_id, address)
        if port is None or tag not in port.get("tags", []):
            return
        if _tags_of(port["tags"], address) == [tag]:
            self._change_pairs(port_id, lambda pairs: [p for p in pairs if p["ip_address"] != address])
        self._call("DELETE", f"/v2.0/ports/{port_id}/tags/{tag}", missing=True)

    def allowed(self, address: str, load_balancer_id: str) -> list[dict[str, Any]]:
        """Return the ports that have an address pair of ours for a VIP."""
        return self._list("/v2.0/ports", "ports", tags=_tag(load_balancer_id, address))

    def remove_vip_port(self, port_id: str, load_balancer_id: str) -> None:
        """Remove the port that Octavia has made for a load balancer that is refused; a user's own one stays."""
        port = self._port(port_id)
        if port and port["device_owner"] == "Octavia" and port["device_id"] == f"lb-{load_balancer_id}":
            self._call("DELETE", f"/v2.0/ports/{port_id}", missing=True)

    def _port(self, port_id: str) -> dict[str, Any] | None:
        body = self._call("GET", f"/v2.0/ports/{port_id}", missing=True)
        return body["port"] if body else None

    def _change_pairs(self, port_id: str, change: Any) -> None:
        """Change the pairs of a port unless another client has changed it meanwhile; then try again."""
        for _ in range(_ATTEMPTS):
            port = self._port(port_id)
            if port is None:
                return
            pairs = change(port["allowed_address_pairs"])
            revision = port.get("revision_number")
            headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
            try:
                self._call(
                    "PUT", f"/v2.0/ports/{port_id}", json={"port": {"allowed_address_pairs": pairs}}, headers=headers
                )
            except service.Changed:
                continue
            return
        errors.failed(f"port {port_id}: other clients keep changing its allowed address pairs")

    def _tunnel_end(self, port: dict[str, Any], segment: dict[str, Any] | None) -> str | None:
        """Return the address of the VTEP in front of a port, by the agent of its host."""
        if segment is None or segment["type"] == "vlan":
            return None
        host = port.get("binding:host_id")
        agents = self._list("/v2.0/agents", "agents", host=host) if host else []
        ends = [a["configurations"]["tunneling_ip"] for a in agents if a.get("configurations", {}).get("tunneling_ip")]
        if not ends:
            errors.refused(
                f"port {port['id']}: Neutron has no tunneling_ip of an agent on its host {host or '(unbound)'}"
            )
        return str(ends[0])

    def _get(self, path: str, key: str) -> Any:
        if path not in self._read:
            body = self._call("GET", path, missing=True)
            self._read[path] = body[key] if body else None
        return self._read[path]

    def _list(self, path: str, key: str, **query: Any) -> list[dict[str, Any]]:
        body = self._call("GET", path, params=query)
        return list(body[key]) if body else []

    def _call(self, method: str, path: str, *, missing: bool = False, **kwargs: Any) -> Any:
        if self._service is None:
            self._service = service.neutron()
        return self._service.call(method, path, missing=missing, **kwargs)


def _same(fixed: dict[str, Any], address: str, subnet_id: str) -> bool:
    return fixed["subnet_id"] == subnet_id and ipaddress.ip_address(fixed["ip_address"]) == ipaddress.ip_address(
        address
    )


def _tag(load_balancer_id: str, address: str) -> str:
    """Return the tag of an address pair, which is shorter than the 60 characters that Neutron allows."""
    return f"{TAG}{load_balancer_id[:8]}-{address}"


def _tags_of(tags: list[str], address: str) -> list[str]:
    return [tag for tag in tags if tag.startswith(TAG) and tag.endswith(f"-{address}")]
