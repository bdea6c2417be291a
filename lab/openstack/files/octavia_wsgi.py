# SPDX-License-Identifier: Apache-2.0
"""Octavia's API for gunicorn, whose arguments it would read."""

from octavia.api import app

application = app.setup_app(argv=["octavia", "--config-file", "octavia.conf"])
