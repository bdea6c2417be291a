# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the LB API's real server, OpenStack's services, and Octavia's configuration."""

import os
import pathlib
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from octavia.common import config as octavia_config
from oslo_config import cfg

from fairlead_octavia_provider import driver, options, service, tree
from fairlead_octavia_provider.api import Client
from tests.cloud import Cloud
from tests.database import Database

octavia_config.LOG.disabled = True

BINARY = pathlib.Path(os.environ.get("FAIRLEAD_BIN", pathlib.Path(__file__).parents[2] / "bin")) / "fairlead"

POLICY = """
addressPools:
- {name: neutron, addresses: [198.18.0.0/15, "2001:db8::/32"], external: true, projects: ["*"]}
loadBalancers:
  memberNetworks: [10.0.0.0/8, "fd00::/8"]
  memberMACs: true
  segments: [{type: vlan, first: 1, last: 4094}, {type: vxlan, first: 1, last: 9999}]
  tunnelEnds: [192.0.2.0/24]
services:
  perNamespace: {services: 200, backends: 400}
dataPlane: {ipvs: true}
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Run `fairlead apiserver`, and return its URL and the file with a token of all projects."""
    if not BINARY.exists():
        pytest.skip(f"{BINARY} is missing: run make build")
    folder = tmp_path_factory.mktemp("apiserver")
    made = subprocess.run(
        [BINARY, "apiserver", "token", "octavia", "--project", "*"], capture_output=True, text=True, check=True
    )
    (folder / "token").write_text(made.stdout)
    (folder / "tokens.yaml").write_text(made.stderr)
    (folder / "policy.yaml").write_text(POLICY)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command: list[str | pathlib.Path] = [
        BINARY,
        "apiserver",
        "--create",
        "--data",
        folder / "data",
        "--policy",
        folder / "policy.yaml",
        "--tokens",
        folder / "tokens.yaml",
        "--listen",
        address,
        "--metrics-address",
        "",
        "--rate",
        "1000",
    ]
    with open(folder / "log", "w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _await(f"http://{address}/v1/openapi.json", process)
            yield f"http://{address}", str(folder / "token")
        finally:
            process.terminate()


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the server answers; 401 is an answer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the API server doesn't answer")


@pytest.fixture
def conf() -> Iterator[Any]:
    """Return the group [fairlead] with its defaults. Overrides end with the test."""
    yield options.register()
    cfg.CONF.reset()
    for name in [option.name for option in options.OPTIONS]:
        cfg.CONF.clear_override(name, group=options.GROUP)
    for name in ("timeout_member_connect", "timeout_client_data", "timeout_member_data"):
        cfg.CONF.clear_override(name, group="haproxy_amphora")


def override(**values: Any) -> None:
    """Set options of the group [fairlead]."""
    options.register()
    for name, value in values.items():
        cfg.CONF.set_override(name, value, group=options.GROUP)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """Return Neutron and Octavia's API, served over HTTP."""
    with Cloud() as found:
        yield found


@pytest.fixture
def database() -> Database:
    """Return Octavia's database: its own data models, without SQL."""
    return Database()


@pytest.fixture
def api(conf: Any, server: tuple[str, str]) -> Client:
    """Return a client of the real server."""
    override(api_urls=[server[0]], api_token_file=server[1])
    return Client()


@pytest.fixture
def provider(api: Client, cloud: Cloud, database: Database, monkeypatch: pytest.MonkeyPatch) -> driver.Driver:
    """Return the driver with the real LB API."""
    connect(api, cloud, database, monkeypatch)
    return driver.Driver()


def connect(api: Client, cloud: Cloud, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect driver and agent to the LB API, the cloud and the database."""
    monkeypatch.setattr(driver, "_api", [api])
    monkeypatch.setattr(service, "neutron", lambda: service.Service("Neutron", cloud.adapter()))
    monkeypatch.setattr(service, "octavia", lambda: service.Service("Octavia", cloud.adapter()))
    monkeypatch.setattr(tree, "library", database.library)
