# SPDX-License-Identifier: Apache-2.0
"""Changes the load balancer "busy" until it is terminated, and repeats calls that fail.

Prints "done" for each change.
"""

import itertools
import time

import keystoneauth1.exceptions
import openstack

cloud = openstack.connect()
octavia, network = cloud.load_balancer, cloud.network
address = {"address": "10.0.4.101", "subnet_id": network.find_subnet("members4").id}


def repeat(call, *args, **fields):
    """Repeat a call until it succeeds, or until an earlier one turns out to have succeeded."""
    while True:
        try:
            return call(*args, **fields)
        except openstack.exceptions.NotFoundException:
            return None
        except openstack.exceptions.ConflictException as error:
            if "immutable" not in str(error):
                return None  # it is there already
        except (openstack.exceptions.SDKException, keystoneauth1.exceptions.ClientException) as error:
            print(error, flush=True)
        time.sleep(0.2)


def await_active(balancer):
    while repeat(octavia.get_load_balancer, balancer).provisioning_status.startswith("PENDING"):
        time.sleep(0.2)
    print("done", flush=True)


repeat(octavia.create_load_balancer, name="busy", vip_subnet_id=network.find_subnet("vips4").id)
balancer = repeat(octavia.find_load_balancer, "busy")
await_active(balancer)
pool = repeat(octavia.create_pool, loadbalancer_id=balancer.id, name="busy", protocol="TCP", lb_algorithm="SOURCE_IP_PORT")
await_active(balancer)
for port in itertools.cycle(range(8000, 8010)):
    repeat(octavia.create_listener, load_balancer_id=balancer.id, protocol="TCP", protocol_port=port, name=f"l{port}")
    await_active(balancer)
    member = repeat(octavia.create_member, pool.id, protocol_port=port, name=f"m{port}", **address)
    await_active(balancer)
    if member:
        repeat(octavia.update_member, member, pool.id, weight=port - 7990)
        await_active(balancer)
        repeat(octavia.delete_member, member, pool.id)
        await_active(balancer)
    listener = repeat(octavia.find_listener, f"l{port}")
    if listener:
        repeat(octavia.delete_listener, listener)
        await_active(balancer)
