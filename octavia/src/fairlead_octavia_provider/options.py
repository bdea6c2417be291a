# SPDX-License-Identifier: Apache-2.0
"""The options of the group [fairlead] in octavia.conf. API and driver agent need the same ones."""

from typing import Any

from oslo_config import cfg

GROUP = "fairlead"

FORWARDING_MODES = ("l2dsr", "ipip", "gue", "vxlan", "geneve", "nat")
"""Forwarding modes of the LB API."""

DATA_PLANES = ("xdp", "ipvs")
"""Data planes of nodes. ROUND_ROBIN and LEAST_CONNECTIONS need ipvs, MAC addresses and segments xdp."""

OPTIONS = [
    cfg.ListOpt("api_urls", default=["http://127.0.0.1:9575"], help="URLs of the LB API's servers."),
    cfg.StrOpt("api_token_file", help="File with the bearer token of a client of all projects."),
    cfg.StrOpt("api_ca_file", help="File with authorities of the servers' certificates; by default the system's."),
    cfg.StrOpt("api_cert_file", help="File with a client certificate, in place of the token."),
    cfg.StrOpt("api_key_file", help="File with the key of the client certificate."),
    cfg.FloatOpt("api_timeout", default=10, min=0.1, help="Seconds for a request to the LB API, with repetitions."),
    cfg.FloatOpt("neutron_timeout", default=10, min=0.1, help="Seconds that a request to Neutron may take."),
    cfg.StrOpt("forward", default="l2dsr", choices=FORWARDING_MODES, help="Forwarding mode, unless a flavor has one."),
    cfg.StrOpt("data_plane", default="xdp", choices=DATA_PLANES, help="Data plane, unless a flavor has one."),
    cfg.BoolOpt("segments", default=True, help="Write segments of VIPs and members: balancers are on a trunk."),
    cfg.BoolOpt("round_robin_as_hash", default=False, help="Serve ROUND_ROBIN by a hash, without IPVS."),
    cfg.StrOpt("group_label", default="group", help="Label of LoadBalancers by which groups select them."),
    cfg.BoolOpt("address_pairs", default=True, help="Let members' ports send from the VIP, where they answer clients."),
    cfg.FloatOpt("pending_interval", default=2, min=0.1, help="Seconds between searches for pending load balancers."),
    cfg.FloatOpt("ports_interval", default=60, min=1, help="Seconds between searches for changed MAC addresses."),
    cfg.StrOpt("provider_name", default="fairlead", help="Name of the provider in enabled_provider_drivers."),
    cfg.StrOpt("octavia_endpoint", help="URL of Octavia's API. The default is the catalog's load-balancer service."),
    cfg.StrOpt("octavia_region", help="Region of Octavia's endpoint in the catalog."),
    cfg.StrOpt("octavia_interface", default="internal", help="Interface of Octavia's endpoint in the catalog."),
]


def list_options() -> list[tuple[str, list[Any]]]:
    """Return the options, for oslo-config-generator."""
    return [(GROUP, OPTIONS)]


def register(conf: Any = cfg.CONF) -> Any:
    """Register the options, which may have been registered before, and return their group."""
    conf.register_opts(OPTIONS, group=GROUP)
    return conf[GROUP]


def octavia_default(group: str, name: str) -> Any:
    """Return the configured default of one of Octavia's options; None where Octavia has no such option."""
    try:
        return cfg.CONF[group][name]
    except cfg.NoSuchOptError:
        return None
