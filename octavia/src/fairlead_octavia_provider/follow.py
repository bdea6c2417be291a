# SPDX-License-Identifier: Apache-2.0
"""Follows members' ports that get another MAC address, by the documents of the LB API and Neutron's lists of ports."""

from oslo_log import log

from fairlead_octavia_provider import translate
from fairlead_octavia_provider.api import Client, Document, Problem
from fairlead_octavia_provider.neutron import Neutron

LOG = log.getLogger(__name__)


def follow(api: Client, neutron: Neutron, projects: list[str]) -> int:
    """Write the current MAC addresses of members in segments, and return the number of changed documents."""
    macs = _Macs(neutron)
    changed = 0
    for project in projects:
        for document in list(api.list(project)):
            if not _update(document, macs):
                continue
            try:
                changed += _write(api, project, document["name"], macs)
            except Problem as problem:
                LOG.warning(
                    "MAC addresses of load balancer %s stay until the next round: %s", document["name"], problem
                )
    return changed


def _write(api: Client, project: str, name: str, macs: "_Macs") -> int:
    """Change the current document, unless another client does so meanwhile."""
    current = api.get(project, name)
    if current is None or not _update(current[0], macs):
        return 0
    api.put(project, name, current[0], current[1])
    return 1


def _update(document: Document, macs: "_Macs") -> bool:
    """Give the members of a document their current MAC addresses, and say whether any had another one."""
    changed = False
    for pool in document.get("pools") or []:
        for member in pool.get("members") or []:
            if "mac" not in member or "segment" not in member:
                continue
            mac = macs.of(member["segment"], member["address"])
            if mac and mac.lower() != member["mac"].lower():
                member["mac"], changed = mac, True
    return changed


class _Macs:
    """MAC addresses by segment and address. Each network's ports are listed once."""

    def __init__(self, neutron: Neutron) -> None:
        self._neutron = neutron
        self._of: dict[tuple[str, int], dict[str, str | None]] = {}

    def of(self, segment: Document, address: str) -> str | None:
        """Return the MAC address; None if no port has the address, or more than one."""
        key = (segment["type"], segment["id"])
        if key not in self._of:
            self._of[key] = self._list(segment)
        return self._of[key].get(translate.canonical(address))

    def _list(self, segment: Document) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for network in self._neutron.networks(segment):
            for port in self._neutron.ports_of(network["id"]):
                for fixed in port["fixed_ips"]:
                    address = translate.canonical(fixed["ip_address"])
                    found[address] = None if address in found else port["mac_address"]
        return found
