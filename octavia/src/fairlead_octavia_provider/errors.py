# SPDX-License-Identifier: Apache-2.0
"""Errors as Octavia's API returns them: the user and the log get the same text."""

from typing import NoReturn

from octavia_lib.api.drivers import exceptions as lib


def unsupported(text: str) -> NoReturn:
    """Refuse an option by name: Octavia answers 501 with this text."""
    raise lib.UnsupportedOptionError(user_fault_string=text, operator_fault_string=text)


def failed(text: str) -> NoReturn:
    """Fail the call: Octavia answers 500 with this text, and nothing has changed."""
    raise lib.DriverError(user_fault_string=text, operator_fault_string=text)


def conflict(text: str) -> NoReturn:
    """Refuse an address that is in use: 409, or 500 where octavia-lib has no exception for it."""
    kind = getattr(lib, "Conflict", lib.DriverError)
    raise kind(user_fault_string=text, operator_fault_string=text)
