# SPDX-License-Identifier: Apache-2.0
"""Requests to OpenStack's services, with Octavia's service credentials."""

from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as keystone
from oslo_config import cfg

from fairlead_octavia_provider import errors, options


class Changed(Exception):
    """Another client has changed the object meanwhile (412)."""


class Service:
    """One of OpenStack's services, by its adapter of keystoneauth1."""

    def __init__(self, name: str, client: Any) -> None:
        self.name, self._client = name, client

    def call(self, method: str, path: str, *, missing: bool = False, **kwargs: Any) -> Any:
        """Return the body of an answer; None for 404 if missing says that this is an answer."""
        kwargs.setdefault("timeout", options.register().neutron_timeout)
        try:
            answer = self._client.request(path, method, raise_exc=True, **kwargs)
        except keystone.http.PreconditionFailed as error:
            raise Changed from error
        except keystone.ClientException as error:
            if missing and isinstance(error, keystone.http.NotFound):
                return None
            temporary = not isinstance(error, keystone.http.HTTPClientError) or error.http_status in (401, 408, 429)
            return (errors.failed if temporary else errors.refused)(f"{self.name}: {error}")
        return answer.json() if answer.content else None


def neutron() -> Service:
    """Return Neutron with the options of [neutron] and [service_auth], as Octavia's own client has them."""
    group = cfg.CONF.neutron
    place = (group.valid_interfaces, group.region_name, group.endpoint_override)
    return _service("Neutron", "neutron", group.service_type or "network", *place)


def octavia() -> Service:
    """Return Octavia's API with the credentials of [service_auth]."""
    conf = options.register()
    place = (conf.octavia_interface, conf.octavia_region, conf.octavia_endpoint)
    return _service("Octavia", "service_auth", "load-balancer", *place)


def _service(name: str, group: str, kind: str, interface: Any, region: str | None, endpoint: str | None) -> Service:
    """Return a service by a session as Octavia makes it, which is imported once its configuration has been read."""
    from octavia.common import keystone as octavia_keystone

    session = octavia_keystone.KeystoneSession(group).get_session()
    place = {"interface": interface, "region_name": region, "endpoint_override": endpoint}
    return Service(name, adapter.Adapter(session=session, service_type=kind, connect_retries=1, **place))
