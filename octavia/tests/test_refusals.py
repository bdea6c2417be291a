# SPDX-License-Identifier: Apache-2.0
"""Each option that isn't supported is refused by name wherever it arrives; values that mean "default" never are."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from octavia_lib.api.drivers import data_models as lib
from octavia_lib.api.drivers import exceptions
from oslo_config import cfg

from fairlead_octavia_provider import flavors, refusals, tree
from fairlead_octavia_provider.tree import Part
from tests.conftest import override

XDP, NAT = flavors.Placement("l2dsr", "xdp"), flavors.Placement("nat", "xdp")
IPVS = flavors.Placement("nat", "ipvs")

REFUSED: dict[str, list[tuple[str, Any]]] = {
    "loadbalancer": [("vip_sg_ids", ["sg"]), ("vip_qos_policy_id", "qos")],
    "listener": [
        ("connection_limit", 10),
        ("connection_limit", 0),
        ("protocol", "HTTP"),
        ("protocol", "SCTP"),
        ("protocol", "TERMINATED_HTTPS"),
        ("protocol", "PROMETHEUS"),
        ("protocol", "HTTPS"),
        ("default_tls_container_ref", "ref"),
        ("sni_container_refs", ["ref"]),
        ("client_ca_tls_container_ref", "ref"),
        ("client_crl_container_ref", "ref"),
        ("client_authentication", "MANDATORY"),
        ("insert_headers", {"X-Forwarded-For": "true"}),
        ("tls_versions", ["TLSv1"]),
        ("tls_ciphers", "x"),
        ("alpn_protocols", ["x"]),
        ("hsts_max_age", 5),
        ("timeout_member_connect", 1),
        ("timeout_tcp_inspect", 1),
        ("allowed_cidrs", [f"10.0.{at}.0/24" for at in range(257)]),
        ("l7policies", [{"l7policy_id": "x"}]),
    ],
    "pool": [
        ("protocol", "PROXY"),
        ("protocol", "PROXYV2"),
        ("protocol", "HTTP"),
        ("lb_algorithm", "ROUND_ROBIN"),
        ("lb_algorithm", "LEAST_CONNECTIONS"),
        ("session_persistence", {"type": "HTTP_COOKIE"}),
        ("session_persistence", {"type": "APP_COOKIE", "cookie_name": "x"}),
        ("session_persistence", {"type": "SOURCE_IP", "persistence_granularity": "255.255.0.0"}),
        ("tls_enabled", True),
        ("tls_container_ref", "ref"),
        ("ca_tls_container_ref", "ref"),
        ("tls_ciphers", "x"),
    ],
    "member": [("vnic_type", "direct"), ("protocol_port", 81)],
    "healthmonitor": [
        ("type", "SCTP"),
        ("type", "TLS-HELLO"),
        ("http_method", "POST"),
        ("http_method", "DELETE"),
        ("http_version", 1.0),
        ("type", "UDP-CONNECT"),
    ],
}
"""Options by the kind of object."""

DEFAULTS: dict[str, list[tuple[str, Any]]] = {
    "loadbalancer": [("vip_sg_ids", []), ("vip_sg_ids", None), ("vip_qos_policy_id", None), ("description", "x")],
    "listener": [
        ("connection_limit", -1),
        ("connection_limit", None),
        ("allowed_cidrs", []),
        ("allowed_cidrs", None),
        ("allowed_cidrs", ["0.0.0.0/0"]),
        ("insert_headers", {}),
        ("insert_headers", None),
        ("l7policies", []),
        ("timeout_client_data", 50000),
        ("timeout_client_data", None),
        ("timeout_client_data", 60000),
        ("timeout_member_connect", 5000),
        ("timeout_member_connect", None),
        ("timeout_tcp_inspect", 0),
        ("tls_versions", []),
        ("tls_versions", ["TLSv1.2", "TLSv1.3"]),
        ("alpn_protocols", ["h2", "http/1.1", "http/1.0"]),
        ("client_authentication", "NONE"),
        ("client_authentication", None),
        ("sni_container_refs", []),
        ("hsts_preload", False),
        ("default_tls_container_ref", None),
        ("timeout_member_data", 50000),
    ],
    "pool": [
        ("session_persistence", None),
        ("session_persistence", {}),
        ("tls_enabled", False),
        ("tls_enabled", None),
        ("session_persistence", {"type": "SOURCE_IP", "persistence_timeout": None, "persistence_granularity": None}),
        ("session_persistence", {"type": "SOURCE_IP", "persistence_granularity": "255.255.255.255"}),
        ("tls_versions", []),
        ("alpn_protocols", None),
        ("lb_algorithm", "SOURCE_IP"),
        ("ca_tls_container_ref", None),
    ],
    "member": [("vnic_type", None), ("vnic_type", "normal"), ("backup", None), ("weight", 0), ("monitor_port", None)],
    "healthmonitor": [
        ("type", "PING"),
        ("http_method", None),
        ("http_version", None),
        ("http_version", 1.1),
        ("domain_name", None),
        ("max_retries_down", None),
        ("expected_codes", None),
    ],
}
"""Values that mean a default, or are supported."""


def _balancer() -> Part:
    """Return a whole load balancer, as drivers get it in the all-in-one call."""
    monitor = lib.HealthMonitor(healthmonitor_id="h", pool_id="p", type="HTTP", delay=5, timeout=3, max_retries=2)
    member = lib.Member(member_id="m", pool_id="p", address="10.0.0.11", protocol_port=80)
    pool = lib.Pool(pool_id="p", protocol="TCP", lb_algorithm="SOURCE_IP_PORT", members=[member], healthmonitor=monitor)
    listener = lib.Listener(listener_id="l", protocol="TCP", protocol_port=80, default_pool_id="p", default_pool=pool)
    found = tree.tree(
        lib.LoadBalancer(loadbalancer_id="b", project_id="x", vip_address="198.18.1.1", listeners=[listener])
    )
    assert found
    return found


def _changed(kind: str, change: Part, way: str) -> Part:
    """Return a tree with a change of a part that arrives in one of the ways."""
    found = _balancer()
    pool = found["pools"][0]
    identifiers = {"listener": "l", "pool": "p", "member": "m", "healthmonitor": "h"}
    change = {**change, f"{kind}_id": identifiers.get(kind, "b")}
    if kind == "loadbalancer":
        found.update(change)
    elif kind == "listener":
        tree.put_listener(found, change if way == "update" else {**found["listeners"].pop(), **change})
    elif kind == "pool":
        tree.put_pool(found, change if way == "update" else {**found["pools"].pop(), **change})
    elif kind == "member" and way == "batch":
        pool["members"] = [
            {**pool["members"][0], "member_id": "n", "address": "10.0.0.12"},
            {**pool["members"][0], **change},
        ]
    elif kind == "member":
        tree.put(pool["members"], "member_id", change if way == "update" else {**pool["members"].pop(), **change})
    else:
        pool["healthmonitor"].update(change)
    return found


def _cases(table: dict[str, list[tuple[str, Any]]]) -> list[Any]:
    return [(kind, *option) for kind, options in table.items() for option in options]


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize(("kind", "name", "value"), _cases(REFUSED))
def test_refused(kind: str, name: str, value: Any) -> None:
    for way in ("create", "update", "batch"):
        with pytest.raises(exceptions.UnsupportedOptionError) as error:
            refusals.check(_changed(kind, {name: value}, way), XDP)
        text = error.value.user_fault_string
        assert name in text or f"{value}"[:12] in text, f"{text} doesn't name {name}"


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize(("kind", "name", "value"), _cases(DEFAULTS))
def test_defaults_are_accepted(kind: str, name: str, value: Any) -> None:
    for way in ("create", "update", "batch"):
        refusals.check(_changed(kind, {name: value}, way), XDP)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_combination(data: st.DataObject) -> None:
    """One refused option among any defaults is refused; any defaults together aren't."""
    defaults = data.draw(st.lists(st.sampled_from(_cases(DEFAULTS)), max_size=12))
    bad = data.draw(st.none() | st.sampled_from(_cases(REFUSED)))
    way = data.draw(st.sampled_from(["create", "update"]))
    found = _balancer()
    parts = {
        "loadbalancer": found,
        "listener": found["listeners"][0],
        "pool": found["pools"][0],
        "member": found["pools"][0]["members"][0],
        "healthmonitor": found["pools"][0]["healthmonitor"],
    }
    for kind, name, value in defaults:
        if not (bad and bad[0] == kind and name in (bad[1], "type")):
            parts[kind][name] = value
    refusals.check(found, XDP)
    if bad:
        parts[bad[0]][bad[1]] = bad[2]
        if way == "create":
            found = tree.tree(lib.LoadBalancer(**found)) or {}
        with pytest.raises(exceptions.UnsupportedOptionError):
            refusals.check(found, XDP)


@pytest.mark.usefixtures("conf")
def test_configured_defaults() -> None:
    """Octavia writes its configured defaults into listeners, and keeps them when the options change."""
    for configured in (7000, 8000):
        cfg.CONF.set_override("timeout_member_connect", configured, group="haproxy_amphora")
        cfg.CONF.set_override("timeout_client_data", configured, group="haproxy_amphora")
        refusals.check(_changed("listener", {"timeout_member_connect": configured}, "update"), XDP)
        refusals.check(_changed("listener", {"timeout_member_connect": 5000}, "update"), XDP)
        change = {"timeout_client_data": configured, "timeout_member_data": 9000}
        refusals.check(_changed("listener", change, "update"), XDP)
    with pytest.raises(exceptions.UnsupportedOptionError, match="one idle time-out"):
        refusals.check(_changed("listener", {"timeout_client_data": 1000, "timeout_member_data": 2000}, "update"), XDP)


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize("algorithm", ["ROUND_ROBIN", "LEAST_CONNECTIONS"])
def test_algorithms(algorithm: str) -> None:
    found = _changed("pool", {"lb_algorithm": algorithm}, "update")
    refusals.check(found, IPVS)
    with pytest.raises(exceptions.UnsupportedOptionError, match="SOURCE_IP_PORT"):
        refusals.check(found, NAT)
    override(round_robin_as_hash=True)
    if algorithm == "ROUND_ROBIN":
        refusals.check(found, NAT)
    else:
        with pytest.raises(exceptions.UnsupportedOptionError, match="SOURCE_IP_PORT"):
            refusals.check(found, NAT)


@pytest.mark.usefixtures("conf")
def test_ports_in_any_order() -> None:
    """Member, pool and listener with different ports are refused whichever comes last, not before they meet."""
    steps: dict[str, Callable[[Part], Any]] = {
        "member": lambda f: tree.pool_of(f, "p")["members"].append(
            {"member_id": "m", "address": "10.0.0.1", "protocol_port": 81}
        ),
        "listener": lambda f: tree.put_listener(f, {"listener_id": "l", "protocol": "TCP", "protocol_port": 80}),
        "meeting": lambda f: tree.put_listener(
            f, {"listener_id": "l", "protocol": "TCP", "protocol_port": 80, "default_pool_id": "p"}
        ),
    }
    for order in itertools.permutations(steps):
        found: Part = {"loadbalancer_id": "b", "vip_address": "198.18.1.1", "listeners": [], "pools": []}
        tree.put_pool(found, {"pool_id": "p", "protocol": "TCP"})
        done: set[str] = set()
        for step in order:
            steps[step](found)
            done.add(step)
            refusals.check(found, NAT)
            if {"member", "meeting"} <= done:
                with pytest.raises(exceptions.UnsupportedOptionError, match=r"10\.0\.0\.1: protocol_port 81 .* nat"):
                    refusals.check(found, XDP)
            else:
                refusals.check(found, XDP)


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize(("kind", "most"), [("listeners", 64), ("pools", 64), ("members", 256)])
def test_bounds(kind: str, most: int) -> None:
    found = _balancer()
    parts = found["pools"][0]["members"] if kind == "members" else found[kind]
    parts[:] = [dict(parts[0]) for _ in range(most)]
    refusals.check(found, XDP)
    parts.append(dict(parts[0]))
    with pytest.raises(exceptions.UnsupportedOptionError, match=f"{most + 1} {kind}"):
        refusals.check(found, XDP)


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        ({"allowed_cidrs": ["10.0.0.0/8"]}, False),
        ({"allowed_cidrs": ["0.0.0.0/0"]}, True),
        ({"timeout_client_data": 60000}, False),
        ({"timeout_member_data": 60000}, False),
        ({"timeout_client_data": 50000}, True),
    ],
)
def test_options_without_ipvs(change: Part, accepted: bool) -> None:
    found = _changed("listener", change, "update")
    refusals.check(found, NAT)
    if accepted:
        refusals.check(found, IPVS)
    else:
        with pytest.raises(exceptions.UnsupportedOptionError, match=f"{next(iter(change))}.* ipvs"):
            refusals.check(found, IPVS)


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize("kind", ["TCP", "HTTP", "HTTPS", "UDP-CONNECT", "PING"])
def test_monitors_of_udp_pools(kind: str) -> None:
    """Octavia's API checks the type against the protocol, unless monitor and pool come with a load balancer."""
    found = _changed("healthmonitor", {"type": kind}, "update")
    found["listeners"][0]["protocol"] = found["pools"][0]["protocol"] = "UDP"
    if kind in ("TCP", "HTTP", "UDP-CONNECT"):
        refusals.check(found, XDP)
    else:
        with pytest.raises(exceptions.UnsupportedOptionError, match=f"{kind} .* UDP pools"):
            refusals.check(found, XDP)


@pytest.mark.usefixtures("conf")
def test_members_of_an_additional_vip() -> None:
    found = _balancer() | {"additional_vips": [{"ip_address": "2001:db8::1"}]}
    refusals.check(found, XDP)
    with pytest.raises(exceptions.UnsupportedOptionError, match=r"10\.0\.0\.11: VIP 2001:db8::1 .* nat"):
        refusals.check(found, NAT)
