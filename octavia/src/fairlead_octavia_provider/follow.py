# SPDX-License-Identifier: Apache-2.0
"""Follows members' ports that get another MAC address, by the documents of the LB API and Neutron's lists of ports."""

import functools
from collections.abc import Callable

from oslo_log import log

from fairlead_octavia_provider import translate
from fairlead_octavia_provider.api import Client, Document, Problem
from fairlead_octavia_provider.neutron import Neutron

LOG = log.getLogger(__name__)

Macs = Callable[[str, int], dict[str, str | None]]
"""Returns the MAC addresses of a segment by IP address; None for an address of several ports."""


def follow(api: Client, neutron: Neutron, projects: list[str]) -> None:
    """Write the current MAC addresses of members in segments. Each network's ports are listed once."""
    macs = functools.cache(functools.partial(_macs, neutron))
    for project in projects:
        try:
            for document in list(api.list(project)):
                # Another client may have changed the document meanwhile.
                current = api.get(project, document["name"]) if _update(document, macs) else None
                if current and _update(current[0], macs):
                    api.put(project, document["name"], *current)
        except Problem as problem:
            LOG.warning("MAC addresses of project %s stay until the next round: %s", project, problem)


def _update(document: Document, macs: Macs) -> bool:
    """Give the members of a document their current MAC addresses, and say whether any had another one."""
    changed = False
    for member in (m for pool in document.get("pools") or [] for m in pool.get("members") or []):
        if "mac" in member and "segment" in member:
            found = macs(member["segment"]["type"], member["segment"]["id"])
            mac = found.get(translate.canonical(member["address"]))
            if mac and mac.lower() != member["mac"].lower():
                member["mac"], changed = mac, True
    return changed


def _macs(neutron: Neutron, kind: str, number: int) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for network in neutron.networks(kind, number):
        for port in neutron.ports_of(network["id"]):
            for fixed in port["fixed_ips"]:
                address = translate.canonical(fixed["ip_address"])
                found[address] = None if address in found else port["mac_address"]
    return found
