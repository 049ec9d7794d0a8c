"""Whether a host answers, asked once: without a network, clients of hubs try again for half a minute."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies

_PATIENCE = 5.0  # seconds


def is_reachable(address: str) -> bool:
    """Whether somebody answers at an address, such as ``https://example.org``; taken for granted behind a proxy."""
    if getproxies():
        return True
    host = urlsplit(address)
    try:
        socket.create_connection((host.hostname or "", host.port or 443), timeout=_PATIENCE).close()
    except OSError:
        return False
    return True
