# SPDX-License-Identifier: Apache-2.0
"""Fills Keystone and Neutron by networks.json, with the environment of Keystone's administrator.

Prints the MAC addresses of members' ports and the IDs of subnets by name as JSON.
"""

import json
import sys
from pathlib import Path

import openstack

cloud = openstack.connect()
networks = json.loads(Path("networks.json").read_text())

service = cloud.create_project("service", domain_id="default")
for user in ("octavia", "neutron"):
    cloud.create_user(user, password="secret", domain_id="default")
    for role in ("admin", "service"):
        cloud.grant_role(role, user=user, project="service")
tenant = cloud.create_project("tenant", domain_id="default")
cloud.create_user("tenant", password="secret", domain_id="default")
cloud.grant_role("member", user="tenant", project="tenant")
for name, kind, url in (
    ("octavia", "load-balancer", "http://127.0.0.1:9876"),
    ("neutron", "network", "http://127.0.0.1:9696"),
):
    found = cloud.create_service(name, type=kind)
    cloud.create_endpoint(found.id, public_url=url, internal_url=url, admin_url=url, region="RegionOne")

cloud = openstack.connect()  # with the new catalog
macs, identifiers = {}, {}
for name, network in networks.items():
    made = cloud.network.create_network(
        name=name,
        project_id=tenant.id,
        provider_network_type="vlan",
        provider_physical_network="physnet1",
        provider_segmentation_id=network["vlan"],
    )
    subnets = [
        cloud.network.create_subnet(
            name=f"{name}{version}",
            project_id=tenant.id,
            network_id=made.id,
            ip_version=version,
            cidr=cidr,
            is_dhcp_enabled=False,
        )
        for version, cidr in ((4, network["cidrs"][0]), (6, network["cidrs"][1]))
    ]
    identifiers |= {subnet.name: subnet.id for subnet in subnets}
    for port, addresses in network.get("ports", {}).items():
        fixed = [{"subnet_id": s.id, "ip_address": a} for s, a in zip(subnets, addresses, strict=True)]
        macs[port] = cloud.network.create_port(
            name=port, project_id=tenant.id, network_id=made.id, device_owner="compute:nova", fixed_ips=fixed
        ).mac_address
json.dump({"macs": macs, "subnets": identifiers}, sys.stdout)
