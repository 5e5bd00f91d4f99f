"""Which DataNodes are near: those on this machine, whose bytes cross no network."""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache


def is_here(address: str) -> bool:
    """Whether host:port belongs to this machine. A name is compared, never looked up."""
    return _is_own(address.rpartition(":")[0].strip("[]"))


@lru_cache(maxsize=1024)
def _is_own(host: str) -> bool:
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return host in ("localhost", socket.gethostname())
    family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # The system binds a socket to its own addresses only; nothing is sent.
            probe.bind((host, 0))
    except OSError:
        return False
    return True
