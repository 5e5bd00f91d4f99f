"""The address of a cluster: `paxosblock://host:9870[,host:port...]/path`, or the environment.

`?at=2h` at the end of a URL asks for what was there at that time, as `as_of` reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from paxosblock.client.names.as_of import as_of
from paxosblock.errors import ConfigError

SCHEME: Final = "paxosblock://"
DEFAULT_PORT: Final = 9870
NAMENODES_VARIABLE: Final = "PAXOSBLOCK_NAMENODES"
_AT: Final = "?at="


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """The NameNodes of a cluster as `host:port`, and a path in it ("/" when none was given)."""

    namenodes: tuple[str, ...]
    path: str = "/"


def parse_url(url: str) -> ClusterUrl:
    """Take a URL apart; a bare `host:port[,host:port]` is taken as one with the path "/".

    Raises:
        ConfigError: another scheme, no host, or a port that is none.
        InvalidRequestError: `?at=` with what is no time, or in the future.
    """
    if "://" in url and not url.startswith(SCHEME):
        raise ConfigError(f"{url!r}: a cluster's URL starts with {SCHEME}")
    hosts, slash, path = url.removeprefix(SCHEME).partition("/")
    return ClusterUrl(_addresses(hosts.split(","), url), path_of(slash + path) or "/")


def path_of(written: str) -> str:
    """Return the path of the cluster that the part of a URL behind the hosts names.

    Raises InvalidRequestError: `?at=` with what is no time, or in the future.
    """
    path, at, when = written.rpartition(_AT)
    return as_of(path, when) if at else written


def cluster_addresses(cluster: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return NameNodes' addresses, from a URL, addresses, or (None) from PAXOSBLOCK_NAMENODES.

    Raises:
        ConfigError: there are none, or one of them is no `host:port`.
    """
    if cluster is None:
        cluster = os.environ.get(NAMENODES_VARIABLE, "")
        if not cluster:
            raise ConfigError(f"no cluster given: pass a URL or set {NAMENODES_VARIABLE}=HOST:PORT")
    if isinstance(cluster, str):
        return parse_url(cluster).namenodes
    addresses = tuple(cluster)
    return _addresses(addresses, ",".join(addresses))


def _addresses(parts: Iterable[str], source: str) -> tuple[str, ...]:
    addresses = tuple(_address(part.strip(), source) for part in parts if part.strip())
    if not addresses:
        raise ConfigError(f"{source!r} names no NameNode (HOST:PORT)")
    return addresses


def _address(text: str, source: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    else:
        host, colon, port = text.rpartition(":")
        host, port = (host, port) if colon else (text, str(DEFAULT_PORT))
    bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not host or bare_ipv6 or any(sign.isspace() or sign in "@?#" for sign in host):
        raise ConfigError(f"{source!r}: {text!r} is no HOST:PORT")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"{source!r}: {port!r} is no port (1 to 65535)")
    return f"{host}:{int(port)}"
