# SPDX-License-Identifier: Apache-2.0
"""Members' places and allowed address pairs in Neutron."""

import copy
import itertools
from typing import Any

import pytest
from octavia_lib.api.drivers import exceptions

from fairlead_octavia_provider import service
from fairlead_octavia_provider.neutron import Neutron
from tests.cloud import MEMBER_SUBNET, VLAN, Cloud

VIP, FIRST, SECOND = "2001:db8:1111:2222:3333:4444:5555:6666", "11111111-1111", "22222222-2222"


@pytest.fixture
def neutron(conf: object, cloud: Cloud) -> Neutron:
    return Neutron(service.Service("Neutron", cloud.adapter()))


def test_place(neutron: Neutron, cloud: Cloud) -> None:
    cloud.port("10.1.0.5", "flat-subnet")
    cloud.port("10.2.0.5", "vxlan-subnet", **{"binding:host_id": "compute1"})
    cloud.agents = [{"host": "compute1", "configurations": {"tunneling_ip": "192.0.2.7"}}]
    assert neutron.member("10.0.0.11", MEMBER_SUBNET).segment == {"type": "vlan", "id": VLAN}
    assert neutron.member("10.1.0.5", "flat-subnet").segment is None
    place = neutron.member("10.2.0.5", "vxlan-subnet")
    assert (place.segment, place.tunnel_end) == ({"type": "vxlan", "id": 5001}, "192.0.2.7")
    reads = [path for _, path in cloud.requests if "/subnets/" in path]
    neutron.member("10.0.0.12", MEMBER_SUBNET)
    assert [path for _, path in cloud.requests if "/subnets/" in path] == reads, "a subnet was read twice"


@pytest.mark.parametrize(
    ("address", "subnet", "match"),
    [
        ("10.0.0.99", MEMBER_SUBNET, "Neutron has 0 ports"),
        ("10.1.0.5", MEMBER_SUBNET, "isn't in its subnet"),
        ("10.0.0.11", "none", "no subnet none"),
        ("10.2.0.9", "vxlan-subnet", "no tunneling_ip"),
    ],
)
def test_unknown_member(address: str, subnet: str, match: str, neutron: Neutron, cloud: Cloud) -> None:
    cloud.port("10.2.0.9", "vxlan-subnet")
    with pytest.raises((exceptions.DriverError, exceptions.UnsupportedOptionError), match=match):
        neutron.member(address, subnet)


def test_network_without_provider_attributes(neutron: Neutron, cloud: Cloud) -> None:
    cloud.networks["member-network"] = {"id": "member-network"}
    with pytest.raises(exceptions.DriverError, match="a role"):
        neutron.member("10.0.0.11", MEMBER_SUBNET)


def test_pairs(neutron: Neutron, cloud: Cloud) -> None:
    port = cloud.at("10.0.0.11")
    port["allowed_address_pairs"] = [{"ip_address": "10.9.9.9"}]
    for load_balancer in (FIRST, FIRST, SECOND):
        neutron.allow(dict(port), VIP, load_balancer)
    assert [p["ip_address"] for p in port["allowed_address_pairs"]] == ["10.9.9.9", VIP]
    assert len(port["tags"]) == 2
    neutron.disallow(dict(port), VIP, FIRST)
    assert [p["ip_address"] for p in port["allowed_address_pairs"]] == ["10.9.9.9", VIP], "the second one needs it"
    for found in neutron.allowed(VIP, SECOND):
        neutron.disallow(found, VIP, SECOND)
    assert not neutron.allowed(VIP, SECOND)
    assert port["allowed_address_pairs"] == [{"ip_address": "10.9.9.9"}]
    assert port["tags"] == []


def test_pairs_of_calls_at_once(neutron: Neutron, cloud: Cloud) -> None:
    """One call comes between two requests of another: a port has the pair if it has a tag, and only then."""
    port, second, call, requests = (
        cloud.at("10.0.0.11"),
        Neutron(service.Service("Neutron", cloud.adapter())),
        neutron._call,
        0,
    )

    def between(*args: Any, **kwargs: Any) -> Any:
        nonlocal requests
        requests += 1
        if requests == at:
            getattr(second, inner)(copy.deepcopy(port), VIP, other)
        return call(*args, **kwargs)

    calls, balancers = ("allow", "disallow"), (FIRST, SECOND)
    for outer, inner, other, stored, at in itertools.product(calls, calls, balancers, range(3), range(1, 5)):
        port.update(tags=[], allowed_address_pairs=[])
        for load_balancer in balancers[:stored]:
            second.allow(copy.deepcopy(port), VIP, load_balancer)
        requests, neutron._call = 0, between
        getattr(neutron, outer)(copy.deepcopy(port), VIP, FIRST)
        paired = [p["ip_address"] for p in port["allowed_address_pairs"]]
        assert paired == ([VIP] if port["tags"] else []), f"{outer}, {inner} of {other} at {at}, {stored} before"


def test_pair_of_the_user_stays(neutron: Neutron, cloud: Cloud) -> None:
    port = cloud.at("10.0.0.11")
    port["allowed_address_pairs"] = [{"ip_address": VIP}]
    neutron.allow(dict(port), VIP, FIRST)
    assert not neutron.allowed(VIP, FIRST)
    assert port["allowed_address_pairs"] == [{"ip_address": VIP}]


def test_port_without_security(neutron: Neutron, cloud: Cloud) -> None:
    port = cloud.at("10.0.0.11")
    port["port_security_enabled"] = False
    neutron.allow(dict(port), VIP, FIRST)
    assert port["tags"] == port["allowed_address_pairs"] == []


def test_port_that_changes_meanwhile(neutron: Neutron, cloud: Cloud) -> None:
    port = cloud.at("10.0.0.11")
    read = dict(port)
    port.update(allowed_address_pairs=[{"ip_address": "10.9.9.9"}], revision_number=9)
    neutron.allow(read, VIP, FIRST)
    assert [p["ip_address"] for p in port["allowed_address_pairs"]] == ["10.9.9.9", VIP]
    read = dict(port)
    del cloud.ports[port["id"]]
    neutron.disallow(read, VIP, FIRST)


def test_look_up(neutron: Neutron, cloud: Cloud) -> None:
    """Many members need few requests, and a port of another subnet isn't one of them."""
    addresses = [f"10.0.3.{at}" for at in range(200)]
    for address in addresses:
        cloud.port(address, MEMBER_SUBNET)
    cloud.port("10.0.3.7", "flat-subnet")
    neutron.look_up(MEMBER_SUBNET, addresses)
    for address in addresses:
        assert neutron.member(address, MEMBER_SUBNET).port is not None
    assert len(cloud.requests) <= 10
    assert neutron.member("fd00:0::11", "member-subnet6").port["fixed_ips"][0]["ip_address"] == "fd00::11"
