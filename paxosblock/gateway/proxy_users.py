"""The users who may act for others: the setting `proxy_users`, as `hadoop.proxyuser.*` of HDFS.

A rule is `NAME@HOSTS=USERS`: the user NAME may act for those of USERS when the connection begins at
one of HOSTS. Both are lists with commas, or `*` for all; a host is an address, or a network such as
`10.0.0.0/8`. Rules stand behind each other with `;` between them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from paxosblock.base.user_names import is_user
from paxosblock.errors import ConfigError

ALL = "*"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ImpersonationError(Exception):
    """A user asks to act for another one, and may not; the message has Hadoop's words."""


@dataclass(frozen=True, slots=True)
class ProxyRule:
    """A rule: for whom one user may act, and from where."""

    name: str
    hosts: tuple[Network, ...] | None
    """None: from everywhere."""
    users: frozenset[str] | None
    """None: for each user."""

    def has_host(self, address: str) -> bool:
        """True if a connection from this address may bring such a request."""
        if self.hosts is None:
            return True
        try:
            host = ipaddress.ip_address(address.partition("%")[0])  # %: the interface of a link
        except ValueError:
            return False
        if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
            host = host.ipv4_mapped
        return any(host in network for network in self.hosts)


@dataclass(frozen=True, slots=True)
class ProxyUsers:
    """All rules. Without one no user acts for another."""

    rules: tuple[ProxyRule, ...] = ()

    @classmethod
    def of(cls, setting: str) -> ProxyUsers:
        """Read the setting.

        Raises:
            ConfigError: a rule is none; the message says why.
        """
        return cls(tuple(_rules(setting)))

    def check(self, name: str, other: str, address: str) -> None:
        """Check that a user may act for another one in a request that comes from `address`.

        Raises:
            ImpersonationError: they may not.
        """
        found = [
            rule
            for rule in self.rules
            if rule.name == name and (rule.users is None or other in rule.users)
        ]
        if not found:
            words = f"User: {name} is not allowed to impersonate {other}"
            raise ImpersonationError(words)
        if not any(rule.has_host(address) for rule in found):
            words = f"Unauthorized connection for super-user: {name} from IP {address}"
            raise ImpersonationError(words)


def _rules(setting: str) -> Iterator[ProxyRule]:
    for text in filter(None, (part.strip() for part in setting.split(";"))):
        left, _, users = text.rpartition("=")
        name, _, hosts = left.rpartition("@")
        if not (name and hosts and users):
            raise _wrong(text, "expected NAME@HOSTS=USERS")
        named = [user.strip() for user in users.split(",")]
        for user in (name, *named):
            if not is_user(user) or (user == ALL and named != [ALL]):
                raise _wrong(text, f"{user!r} is no name of a user")
        if name == ALL:
            raise _wrong(text, "it must name the user who acts for others")
        yield ProxyRule(name, _networks(text, hosts), None if users == ALL else frozenset(named))


def _networks(text: str, hosts: str) -> tuple[Network, ...] | None:
    if hosts == ALL:
        return None
    try:
        return tuple(ipaddress.ip_network(host.strip()) for host in hosts.split(","))
    except ValueError as error:
        raise _wrong(text, str(error)) from None


def _wrong(text: str, why: str) -> ConfigError:
    return ConfigError(f"proxy_users: {text!r}: {why}")
