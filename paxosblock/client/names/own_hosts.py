"""The hosts of a URL that are this cluster: those it was named by, and its members."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatusRequest
from paxosblock.client.names.url import SCHEME, parse_url
from paxosblock.errors import InvalidRequestError, PaxosBlockError
from paxosblock.net.calls.control import call

ASK_WITHIN_S: Final = 2.0
"""Seconds that each NameNode may take to name the others."""

_LOOPBACK: Final = ("localhost", "[::1]")


class OwnHosts:
    """Tells a URL of one cluster from that of another.

    No name is looked up: what a URL names is compared as it is written, apart from the names of
    this machine for itself. About unknown hosts it asks the cluster's NameNodes, not the host.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        ask: Callable[[tuple[str, ...]], Iterable[str]] | None = None,
    ) -> None:
        """Ask no NameNode yet.

        Args:
            addresses: the NameNodes that the user named, `host:port`.
            ask: tells all members, from what these addresses answer; None asks them.
        """
        self._addresses = addresses
        self._ask = members_of if ask is None else ask
        self._own = set(map(_canonical, addresses))

    def path(self, url: str) -> str:
        """Return the path in a URL, after `check`; "/" when it names none."""
        found = parse_url(url)
        self.check(url, found.namenodes)
        return found.path

    def check(self, source: str, hosts: Iterable[str]) -> None:
        """Refuse hosts of another cluster. Blocks while the NameNodes are asked, only for a host
        that is not known yet.

        Args:
            source: the URL or path that the user wrote.
            hosts: the `host:port` in it.

        Raises:
            InvalidRequestError: one of them is not one of this cluster's NameNodes.
        """
        strange = [host for host in hosts if _canonical(host) not in self._own]
        if not strange:
            return
        self._own.update(map(_canonical, self._ask(self._addresses)))
        for host in strange:
            if _canonical(host) not in self._own:
                raise InvalidRequestError(
                    f"'{source}': {host} is no NameNode of the cluster {','.join(self._addresses)}",
                    path=source,
                )


def members_of(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return all NameNodes of the cluster, as the first of `addresses` that answers knows them;
    empty when none answers, and for a cluster that has a single one.
    """
    for address in addresses:
        try:
            return call(address, NAMENODE_STATUS, NameNodeStatusRequest(), ASK_WITHIN_S).members
        except PaxosBlockError:
            continue
    return ()


def is_url(written: str) -> bool:
    """True for a URL that names its cluster; one without a host takes it from elsewhere."""
    host = written.removeprefix(SCHEME)
    return written != host != "" and not host.startswith("/")


def same_hosts(some: Iterable[str], all_of: Iterable[str]) -> bool:
    """True if each of `some` is among `all_of`, by what is written alone."""
    return set(map(_canonical, some)) <= set(map(_canonical, all_of))


def _canonical(address: str) -> str:
    host, _, port = address.lower().rpartition(":")
    host = host.rstrip(".")
    return f"127.0.0.1:{port}" if host in _LOOPBACK else f"{host}:{port}"
