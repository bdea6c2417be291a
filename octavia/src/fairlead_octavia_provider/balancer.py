# SPDX-License-Identifier: Apache-2.0
"""Makes the LB API have a load balancer as Octavia has it: the same code for create, update, delete and repair."""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from octavia_lib.api.drivers import exceptions as lib
from oslo_log import log

from fairlead_octavia_provider import errors, flavors, options, refusals, service, translate
from fairlead_octavia_provider.api import MARK, REPEATED, Client, Document, Problem
from fairlead_octavia_provider.neutron import Neutron
from fairlead_octavia_provider.tree import Part, vips

LOG = log.getLogger(__name__)

Stored = list[tuple[Document, str] | None]
"""The documents of a load balancer in the LB API with their entity tags, in the order of VIPs."""

_ATTEMPTS = 4
_LOCATED = ("mac", "segment", "tunnelEnd")
_DEFAULTS: Document = {"enabled": True, "protocol": "TCP", "weight": 1, "sessionAffinity": "None", "backup": False}


class Balancer:
    """One load balancer of Octavia, during one call."""

    def __init__(self, api: Client, neutron: Neutron, tree: Part) -> None:
        self.api, self.neutron, self.tree = api, neutron, tree
        self.id, self.project = tree["loadbalancer_id"], tree["project_id"]
        self.changing = False  # true once something may have been written
        self._ports: dict[str, Document] = {}  # of members that were looked up, by their IDs

    def write(self, *, lenient: bool = False, fresh: bool = False, dry: bool = False) -> bool:
        """Write the documents that differ, and say whether any did.

        lenient is for deletes: nothing is refused, and members that Neutron doesn't know are left out. fresh reads
        the places of all members from Neutron, not only of new ones. dry changes nothing.
        """
        for _ in range(_ATTEMPTS):
            try:
                return self._write(lenient, fresh, dry)
            except Problem as problem:
                if problem.status != 412:
                    _raise(problem, self.project)
        return errors.failed(f"load balancer {self.id}: other clients keep changing it in the LB API")

    def remove(self) -> None:
        """Delete the documents, then the address pairs. It is a success if there are none."""
        try:
            for name in translate.names(self.tree):
                self.api.delete(self.project, name)
        except Problem as problem:
            _raise(problem, self.project)
        self._disallow(set())

    def _write(self, lenient: bool, fresh: bool, dry: bool) -> bool:
        stored = self._stored()
        placement = self._placement(stored)
        if not lenient:
            refusals.check(self.tree, placement)
        places = {} if fresh else _places(stored)
        if not lenient and self._needs_ports(placement):
            self._look_up_all(places)
        segments = [
            self._segment(vip, placement, None if fresh else known)
            for vip, known in zip(vips(self.tree), stored, strict=True)
        ]
        wanted = translate.documents(
            self.tree, placement, segments, lambda member: self._place(member, placement, places, lenient)
        )
        different = [at for at, known in enumerate(stored) if known is None or not same(wanted[at], known[0])]
        if dry or not different:
            return bool(different)
        self.changing, written = True, False
        try:
            self._allow(placement)
            for at in different:
                known = stored[at]
                self.api.put(self.project, translate.name(self.id, at), wanted[at], known[1] if known else None)
                written = True
        except Exception as error:
            # Without an answer, which may be followed by a 412, the document may have been written.
            if not written and not (isinstance(error, Problem) and error.status in (*REPEATED, 412)):
                self._disallow(_members(known[0] for known in stored if known))
            raise
        if not placement.rewrites_port:
            self._disallow(_members([self.tree]))
        return True

    def _stored(self) -> Stored:
        found = [self.api.get(self.project, name) for name in translate.names(self.tree)]
        for known in found:
            if known and (known[0].get("labels") or {}).get(MARK) != self.id:
                errors.conflict(f"load balancer {self.id}: the LB API has one of this name that Octavia hasn't made")
        return found

    def _placement(self, stored: Stored) -> flavors.Placement:
        """Return the placement. Octavia gives the metadata of a zone only at the creation, later its name."""
        zone = self.tree.get("availability_zone")
        if not isinstance(zone, str):
            return flavors.place(self.tree.get("flavor"), zone)
        if stored[0] is None:
            return flavors.place(self.tree.get("flavor"), _zone(zone))
        document = stored[0][0]
        group = (document.get("labels") or {}).get(options.register().group_label, "")
        return dataclasses.replace(
            flavors.place(self.tree.get("flavor"), None), group=group, address_pool=document.get("addressPool", "")
        )

    def _segment(self, vip: Part, placement: flavors.Placement, known: tuple[Document, str] | None) -> Document | None:
        """Return the segment of a VIP: as it is stored, else as Neutron has it."""
        if placement.data_plane == "ipvs" or not options.register().segments:
            return None
        if known is not None and known[0].get("address") == translate.canonical(vip["ip_address"]):
            return known[0].get("segment")
        return self.neutron.segment(vip["network_id"])

    def _place(
        self, member: Part, placement: flavors.Placement, places: dict[str, Document], lenient: bool
    ) -> Document | None:
        """Return the place of a member: as it is stored, else as Neutron has it."""
        name = translate.member_name(member["address"], member["protocol_port"])
        if name in places:
            return places[name]
        try:
            return self._look_up(member, placement)
        except (lib.DriverError, lib.UnsupportedOptionError) as error:
            if not lenient:
                raise
            LOG.warning("Member %s of load balancer %s is left out: %s", name, self.id, error)
            return None

    def _needs_ports(self, placement: flavors.Placement) -> bool:
        """Say whether the ports of members are needed, not only their addresses."""
        return placement.addresses_frames or (not placement.rewrites_port and options.register().address_pairs)

    def _look_up_all(self, places: dict[str, Document]) -> None:
        """Read the ports of all members that have no place yet, with few requests."""
        new: dict[str, list[str]] = {}
        for member in (m for pool in self.tree["pools"] for m in pool["members"]):
            if translate.member_name(member["address"], member["protocol_port"]) not in places:
                new.setdefault(self._subnet(member), []).append(member["address"])
        for subnet, addresses in new.items():
            self.neutron.look_up(subnet, addresses)

    def _subnet(self, member: Part) -> str:
        return str(member.get("subnet_id") or self.tree["vip_subnet_id"])

    def _look_up(self, member: Part, placement: flavors.Placement) -> Document:
        conf = options.register()
        address, subnet = member["address"], self._subnet(member)
        if not self._needs_ports(placement):
            self.neutron.subnet(address, subnet)
            return {}
        place = self.neutron.member(address, subnet)
        self._ports[place.port["id"]] = place.port
        if not placement.addresses_frames:
            return {}
        kind = place.segment["type"] if place.segment else "flat"
        wants = placement.forward if placement.forward in ("vxlan", "geneve") else "vlan"
        if kind not in (wants, "flat" if wants == "vlan" else wants):
            errors.unsupported(
                f"member {address}: its network is of type {kind}, which the mode {placement.forward} can't "
                f"reach; use a flavor with forward {kind if kind in ('vxlan', 'geneve') else 'l2dsr'}"
            )
        located: Document = {"mac": place.port["mac_address"]}
        if place.segment and conf.segments:
            located["segment"] = place.segment
        if place.tunnel_end:
            located["tunnelEnd"] = place.tunnel_end
        return located

    def _addresses(self) -> list[str]:
        return [translate.canonical(vip["ip_address"]) for vip in vips(self.tree)]

    def _allow(self, placement: flavors.Placement) -> None:
        """Let the ports of new members send from the VIPs."""
        if placement.rewrites_port or not options.register().address_pairs:
            return
        for port in self._ports.values():
            for address in self._addresses():
                self.neutron.allow(port, address, self.id)

    def _disallow(self, members: set[str]) -> None:
        """Remove the address pairs of ports that have none of these members. The LB API has been written already."""
        if not options.register().address_pairs:
            return
        try:
            for address in self._addresses():
                for port in self.neutron.allowed(address, self.id):
                    if not members & {translate.canonical(f["ip_address"]) for f in port["fixed_ips"]}:
                        self.neutron.disallow(port, address, self.id)
        except lib.DriverError as error:
            LOG.warning(
                "Address pairs of load balancer %s stay until the next change of its members: %s", self.id, error
            )


def same(document: Document, stored: Document) -> bool:
    """Say whether the stored document has the same content: the LB API completes names and defaults."""
    return bool(_content(document) == _content(stored))


def _content(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_content(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    if isinstance(value, dict):
        member = "address" in value and "port" in value
        return {
            k: _content(v)
            for k, v in value.items()
            if v != []
            and not (k in _DEFAULTS and v == _DEFAULTS[k])
            and not (k == "name" and (member or "forward" in value))
        }
    return value


def _members(trees: Iterable[Part]) -> set[str]:
    """Return the addresses of members of documents, or of Octavia's trees."""
    pools = [pool for tree in trees for pool in tree.get("pools") or []]
    return {translate.canonical(member["address"]) for pool in pools for member in pool.get("members") or []}


def _places(stored: Stored) -> dict[str, Document]:
    """Return the stored places of members by their names."""
    return {
        translate.member_name(m["address"], m["port"]): {k: m[k] for k in _LOCATED if k in m}
        for known in stored
        if known
        for pool in known[0].get("pools") or []
        for m in pool.get("members") or []
    }


def _zone(name: str) -> Document:
    """Return the metadata of an availability zone, from Octavia's API."""
    octavia = service.octavia()
    zone = octavia.call("GET", f"/v2/lbaas/availabilityzones/{name}")["availability_zone"]
    profile = octavia.call("GET", f"/v2/lbaas/availabilityzoneprofiles/{zone['availability_zone_profile_id']}")
    data: Document = json.loads(profile["availability_zone_profile"]["availability_zone_data"])
    return data


def _raise(problem: Problem, project: str) -> None:
    """Raise a problem of the LB API as an error of the driver, with the server's text."""
    text = f"LB API: {problem}"
    if problem.status == 409 or (problem.status == 422 and "address" in problem.fields):
        errors.conflict(text)
    if problem.status in (400, 422):
        errors.unsupported(text)
    if problem.status in REPEATED:
        errors.failed(f"{text}. Repeat the request")
    if problem.status == 404:
        text += f". Project {project} isn't known to the LB API: in a cluster it needs a namespace, and a role "
        text += "binding of the LB API's account there"
    (errors.failed if problem.status < 0 else errors.refused)(text)
