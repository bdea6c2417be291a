# SPDX-License-Identifier: Apache-2.0
"""Errors as Octavia's API returns them: the user and the log get the same text."""

from typing import NoReturn

from octavia_lib.api.drivers import exceptions as lib


def unsupported(text: str) -> NoReturn:
    """Refuse an option by name: Octavia answers 501 with this text."""
    raise lib.UnsupportedOptionError(user_fault_string=text, operator_fault_string=text)


class Refused(lib.DriverError):
    """A failure that the same call would have again."""


FINAL = (Refused, lib.UnsupportedOptionError, getattr(lib, "Conflict", Refused))
"""Errors that the same call would have again. Others are temporary."""


def failed(text: str) -> NoReturn:
    """Fail the call: Octavia answers 500 with this text, and nothing has changed. The same call may succeed."""
    raise lib.DriverError(user_fault_string=text, operator_fault_string=text)


def refused(text: str) -> NoReturn:
    """Fail the call as failed does, where the same call would fail again."""
    raise Refused(user_fault_string=text, operator_fault_string=text)


def conflict(text: str) -> NoReturn:
    """Refuse an address that is in use: 409, or 500 where octavia-lib has no exception for it."""
    kind = getattr(lib, "Conflict", Refused)
    raise kind(user_fault_string=text, operator_fault_string=text)
