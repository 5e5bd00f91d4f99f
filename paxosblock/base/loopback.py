"""Addresses that only one machine knows."""

from __future__ import annotations

import ipaddress
from contextlib import suppress


def is_loopback(host: str) -> bool:
    """True if only this machine reaches a node that listens there. No name is looked up: one of
    another kind than "localhost" may lead anywhere."""
    if host.lower() == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
