# SPDX-License-Identifier: Apache-2.0
"""Keystone for gunicorn, whose arguments Keystone would read."""

import os
import sys

sys.argv = ["keystone"]
os.environ["OS_KEYSTONE_CONFIG_FILES"] = os.path.abspath("keystone.conf")

from keystone.wsgi.api import application  # noqa: E402, F401
