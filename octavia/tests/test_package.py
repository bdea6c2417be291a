# SPDX-License-Identifier: Apache-2.0
"""The package as Octavia loads it."""

import pathlib
import subprocess
import sys
import time
import tomllib

import pytest
from octavia_lib.api.drivers import exceptions, provider_base
from oslo_config import cfg

from fairlead_octavia_provider import driver, errors, options, service, tree
from tests.cloud import Cloud
from tests.conftest import override

ROOT = pathlib.Path(__file__).parents[1]


def test_entry_points() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["octavia.api.drivers"] == {"fairlead": "fairlead_octavia_provider.driver:Driver"}
    assert issubclass(driver.Driver, provider_base.ProviderDriver)


def test_import_needs_nothing() -> None:
    """Neither sockets nor files nor Octavia itself are used at import."""
    code = (
        "import builtins, socket, sys\n"
        "import keystoneauth1.adapter, octavia_lib.api.drivers.driver_lib, oslo_config.cfg, oslo_log.log, requests\n"
        "socket.socket = None\n"
        "import fairlead_octavia_provider.driver, fairlead_octavia_provider.agent, fairlead_octavia_provider.sync\n"
        "assert 'octavia' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin"})


def test_missing_driver_agent_fails_at_once(conf: object, tmp_path: pathlib.Path) -> None:
    cfg.CONF.set_override("get_socket_path", str(tmp_path / "get.sock"), group="driver_agent")
    start = time.monotonic()
    with pytest.raises(exceptions.DriverError, match="octavia-driver-agent isn't running"):
        tree.library()
    assert time.monotonic() - start < 1
    cfg.CONF.clear_override("get_socket_path", group="driver_agent")


def test_options_are_documented() -> None:
    text = (ROOT.parent / "docs/guides/openstack.md").read_text()
    assert [option.name for option in options.OPTIONS if f"`{option.name}`" not in text] == []
    options.register()
    options.register()


def test_size() -> None:
    lines = sum(len(file.read_text().splitlines()) for file in (ROOT / "src").rglob("*.py"))
    assert lines <= 2200


def test_layer_7_is_not_implemented() -> None:
    with pytest.raises(exceptions.NotImplementedError):
        driver.Driver().l7policy_create(None)


def test_services_have_octavias_options(conf: object) -> None:
    """Region, interface and endpoint of [neutron] are Octavia's own."""
    cfg.CONF.set_override("auth_type", "none", group="service_auth")
    cfg.CONF.set_override("auth_section", "service_auth", group="neutron")
    cfg.CONF.set_override("endpoint_override", "http://127.0.0.1:9", group="neutron")
    options.register()
    cfg.CONF.set_override("octavia_endpoint", "http://127.0.0.1:9", group=options.GROUP)
    for made in (service.neutron(), service.octavia()):
        with pytest.raises(exceptions.DriverError, match=made.name):
            made.call("GET", "/")
    cfg.CONF.set_override("region_name", "north", group="neutron")
    cfg.CONF.set_override("valid_interfaces", ["public", "internal"], group="neutron")
    override(octavia_region="south", octavia_interface="admin")
    places = [(made._client.region_name, made._client.interface) for made in (service.neutron(), service.octavia())]
    assert places == [("north", ["public", "internal"]), ("south", "admin")]
    for name in ("region_name", "valid_interfaces", "endpoint_override"):
        cfg.CONF.clear_override(name, group="neutron")


@pytest.mark.parametrize(
    ("code", "final"), [(400, True), (401, False), (403, True), (404, True), (409, True), (429, False), (503, False)]
)
def test_errors_of_services(code: int, final: bool, conf: object, cloud: Cloud) -> None:
    cloud.broken = code
    with pytest.raises(exceptions.DriverError, match="Neutron") as error:
        service.Service("Neutron", cloud.adapter()).call("GET", "/v2.0/ports")
    assert isinstance(error.value, errors.FINAL) is final
