"""Where a Ray cluster is, and whether anybody answers there."""

from __future__ import annotations

import socket

from flashverify.errors import NoVerdictError, UsageError

__all__ = ["require_reachable"]

_REACH = 20.0
"""Seconds."""


def require_reachable(address: str | None) -> None:
    """Ray itself waits for minutes for an address at which nobody answers.

    Args:
        address: as in `RAY_ADDRESS`; None is none.

    Raises:
        UsageError: it is no address of a cluster.
        NoVerdictError: nobody answers.
    """
    if not address or address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not (port.isascii() and port.isdigit()):
        raise UsageError(f"RAY_ADDRESS={address!r} is not accepted: HOST:PORT of a cluster that this machine is in")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()
    except (OSError, OverflowError) as error:
        raise NoVerdictError(f"no way to the Ray cluster: RAY_ADDRESS={address!r}: {error}") from error
