"""The addresses and names of a node, by which it knows that a caller means it.

A proof that names no node could be passed on: a process that holds the port of a node that is down
would send what callers prove there to another node, and have its connection. So a caller proves
whom it dialled, too (`access.dialled`), and a node takes only what names itself: the address of its
own end of the socket, or, where a router maps one to the other, a name that is its own.

A browser tells in `Host` which name a page of it dialled. The site that serves the page may have
let that name lead to a node, so a node without a secret answers there only to names that others
cannot give.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final

from aiohttp import web

from paxosblock.net.port.access import SocketName, address_of


class OwnNames:
    """The addresses under which others know one node."""

    def __init__(self) -> None:
        """Know none but the machine's: only the address of a socket's own end is the node's."""
        self._addresses: set[str] = set()
        self._hosts = {"localhost", socket.gethostname().lower()}

    def add(self, addresses: Iterable[str]) -> None:
        """Know these host:port, too; leave out those by which each machine means itself, since
        another node may have the same."""
        for address in addresses:
            host, _, port = address.rpartition(":")
            if host and port.isdecimal() and not means_whoever_asks(host):
                self._addresses.add(address_of(host, int(port)))
                self._hosts.add(host.lower())

    def are_in(self, dialled: str, own_end: SocketName | None) -> bool:
        """True if a caller that `dialled` so meant this node, whose end of the socket is
        `own_end`."""
        name, _, address = dialled.partition(" ")
        if own_end and address == address_of(*own_end[:2]):
            return True
        return name in self._addresses

    def have_host(self, header: str) -> bool:
        """True if this `Host` of a request over HTTP is an address or a name of this machine."""
        host, is_address = _host_of(header)
        return is_address or host in self._hosts


OWN_NAMES: Final = web.AppKey("own_names", OwnNames)
"""The names of the node whose port an application serves."""


@lru_cache
def _host_of(header: str) -> tuple[str, bool]:
    """Return the host that a `Host` names, and whether it is an address."""
    host = re.sub(r":\d*$", "", header).lower()
    with suppress(ValueError):
        return host, bool(ipaddress.ip_address(host.strip("[]")))
    return host, False


def is_own(request: web.Request) -> Callable[[str], bool]:
    """Return the question whether a caller that dialled so meant the node that got `request`."""
    names = request.app.get(OWN_NAMES) or OwnNames()
    own_end = request.get_extra_info("sockname")
    return lambda meant: names.are_in(meant, own_end)


def means_whoever_asks(host: str) -> bool:
    """True for localhost, and an address of loopback or of no machine in particular."""
    if host.lower() == "localhost":
        return True
    with suppress(ValueError):
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        return address.is_unspecified or address.is_loopback
    return False
