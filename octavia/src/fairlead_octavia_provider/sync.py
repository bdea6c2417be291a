# SPDX-License-Identifier: Apache-2.0
"""fairlead-octavia-sync makes the LB API have the load balancers that Octavia has. Without --yes it only lists them."""

import argparse
from collections.abc import Callable, Sequence

from fairlead_octavia_provider import translate, tree
from fairlead_octavia_provider.api import Client, Problem
from fairlead_octavia_provider.balancer import Balancer
from fairlead_octavia_provider.neutron import Neutron
from fairlead_octavia_provider.state import PENDING, State
from fairlead_octavia_provider.tree import Part


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status: 1 if a load balancer could not be written."""
    parser = argparse.ArgumentParser(prog="fairlead-octavia-sync", description=__doc__)
    parser.add_argument("--yes", action="store_true", help="write and delete, not only list")
    parser.add_argument(
        "--config-file", action="append", default=[], help="octavia.conf (default: Octavia's own places)"
    )
    args = parser.parse_args(arguments)
    from octavia.common import service as octavia_service
    from oslo_config import cfg
    from oslo_log import log

    log.register_options(cfg.CONF)
    cfg.CONF.set_override("use_stderr", True)  # else logs without a file are lines of the output
    octavia_service.prepare_service(["octavia", *(f"--config-file={file}" for file in args.config_file)])
    return sync(Client(), State(), Neutron, tree.load, dry=not args.yes, show=print)


def sync(
    api: Client,
    state: State,
    neutron: Callable[[], Neutron],
    load: Callable[[str], Part | None],
    *,
    dry: bool,
    show: Callable[[str], None],
) -> int:
    """Write the load balancers that differ, and delete those with the provider's mark that Octavia doesn't have."""
    status, known, projects = 0, set(), api.projects()
    for found in state.load_balancers():
        projects.add(found["project_id"])
        known.update(translate.names({"loadbalancer_id": found["id"], "additional_vips": found.get("additional_vips")}))
        if found["provisioning_status"] in PENDING:
            show(f"{found['id']}: skipped, as it is {found['provisioning_status']}")
            continue
        try:
            committed = load(found["id"])
            if committed and Balancer(api, neutron(), committed).write(fresh=True, dry=dry):
                show(f"{found['id']}: {'differs' if dry else 'written'}")
        except Exception as error:
            show(f"{found['id']}: {error}")
            status = 1
    for project in sorted(projects):
        try:
            for name in [document["name"] for document in api.list(project)]:
                # The list of Octavia is older: the load balancer may have been created meanwhile.
                if name in known or state.read(translate.load_balancer_of(name)) is not None:
                    continue
                show(f"{name}: {'is not in Octavia' if dry else 'deleted'}")
                if not dry:
                    api.delete(project, name)
        except Problem as problem:
            show(f"project {project}: {problem}")
            status = 1
    return status
