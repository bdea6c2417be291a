# SPDX-License-Identifier: Apache-2.0
"""Flavors and availability zones."""

from typing import Any

import pytest
from octavia_lib.api.drivers import exceptions

from fairlead_octavia_provider import flavors
from tests.conftest import override

pytestmark = pytest.mark.usefixtures("conf")


def test_place() -> None:
    assert flavors.place(None, None) == flavors.Placement("l2dsr", "xdp")
    override(forward="nat", data_plane="ipvs")
    assert flavors.place({"group": "a"}, {"address_pool": "b"}) == flavors.Placement("nat", "ipvs", "a", "b")
    assert flavors.place({"group": "a", "forward": "gue"}, {"group": "a"}).forward == "gue"
    with pytest.raises(exceptions.UnsupportedOptionError, match="group"):
        flavors.place({"group": "a"}, {"group": "b"})


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"loadbalancer_topology": "SINGLE"}, "unknown key loadbalancer_topology"),
        ({"forward": "teleport"}, "l2dsr"),
        ({"data_plane": "x"}, "ipvs"),
        ({"group": "-"}, "group"),
        ({"group": 5}, "group"),
        ({"forward": "vxlan", "data_plane": "ipvs"}, "no forward vxlan"),
    ],
)
def test_refused(metadata: dict[str, Any], match: str) -> None:
    with pytest.raises(exceptions.UnsupportedOptionError, match=match):
        flavors.validate_flavor(metadata)


def test_zones_have_no_mode() -> None:
    flavors.validate_zone({"group": "a", "address_pool": "b"})
    with pytest.raises(exceptions.UnsupportedOptionError, match="forward"):
        flavors.validate_zone({"forward": "nat"})
