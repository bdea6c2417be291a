# SPDX-License-Identifier: Apache-2.0
"""Neutron for gunicorn, whose arguments Neutron would read."""

import sys

sys.argv = ["neutron", "--config-file", "neutron.conf"]

from neutron.wsgi.api import application  # noqa: E402, F401
