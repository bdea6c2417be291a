# SPDX-License-Identifier: Apache-2.0
"""Create a load balancer of a lab's servers by the driver, as `python -m tests.answer JSON`.

The LB API is the lab's. Neutron and Octavia's database are the tests'.
"""

import json
import sys

import pytest

from fairlead_octavia_provider.api import Client
from fairlead_octavia_provider.driver import Driver
from tests.cloud import MEMBER_NETWORK, MEMBER_SUBNET, VIP_NETWORK, VIP_SUBNET, Cloud
from tests.conftest import connect, override
from tests.database import Database


def main() -> None:
    """Read the lab's addresses, and create the load balancer."""
    lab = json.loads(sys.argv[1])
    override(api_urls=[lab["url"]], api_token_file=lab["token"], api_ca_file=lab["ca"])
    database = Database()
    with Cloud() as cloud, pytest.MonkeyPatch.context() as patch:
        connect(Client(), cloud, database, patch)
        for network, subnet, name in ((VIP_NETWORK, VIP_SUBNET, "vips"), (MEMBER_NETWORK, MEMBER_SUBNET, "members")):
            cloud.networks[network]["provider:segmentation_id"] = lab[name]["vlan"]
            cloud.subnets[subnet]["cidr"] = lab[name]["cidr"]
        balancer = database.balancer()
        balancer.vip.ip_address = lab["vip"]
        pool = database.commit(database.pool(balancer))
        database.commit(database.listener(balancer, default_pool=pool))
        for address, mac in lab["macs"].items():
            cloud.port(address, MEMBER_SUBNET, mac_address=mac)
            database.commit(database.member(pool, address))
        database.commit(database.monitor(pool, delay=1, timeout=1))
        Driver().loadbalancer_create(database.provider(balancer))


if __name__ == "__main__":
    main()
