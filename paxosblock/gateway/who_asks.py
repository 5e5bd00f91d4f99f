"""The user for whom a gateway acts: that of the token that comes, or, where neither the gateway nor
its callers prove anything, the one that a request names.

A gateway that has a proof of its own, a certificate, a token or the access secret of the cluster,
lends it to no caller: each brings a token of a user, which the cluster checks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from paxosblock.api.user_tokens import looks_like, unsealed
from paxosblock.config import ClientConfig
from paxosblock.errors import AccessDeniedError, ConfigError
from paxosblock.gateway.proxy_users import ImpersonationError, ProxyUsers
from paxosblock.gateway.user_clients import Principal
from paxosblock.host.logs import facts
from paxosblock.net.port.access_server import check_no_page
from paxosblock.net.port.bearer import word_in
from paxosblock.net.port.caller import NOBODY, USER, checked
from paxosblock.net.port.own_names import OwnNames

_log = logging.getLogger(__name__)


class NoProofError(Exception):
    """A request brings no token, and the gateway serves those only who bring one."""


@dataclass(frozen=True, slots=True)
class Identification:
    """Finds out who asks."""

    proves: bool
    """Callers must bring a token."""
    names: OwnNames
    proxies: ProxyUsers

    @classmethod
    def at(cls, config: ClientConfig, names: OwnNames, proxy_users: str) -> Identification:
        """Return that of a gateway which calls the cluster with these settings.

        Raises:
            ConfigError: `proxy_users` is no list of rules, or names are not believed here.
        """
        if proxy_users and config.shows_proof:
            raise ConfigError(
                "proxy_users: users prove who they are here, and no one has a proof of another"
            )
        return cls(config.shows_proof, names, ProxyUsers.of(proxy_users))

    def check_place(
        self, headers: Mapping[str, str], *, is_own: bool = False, pages: Collection[str] = ()
    ) -> None:
        """Check that no page in a browser asks, as it may come from any site.

        Args:
            is_own: the name that it asked for is known to be the gateway's.
            pages: the origins whose pages may ask.

        Raises:
            AccessDeniedError: one may do so.
        """
        check_no_page(headers, self.names, named=not (self.proves or is_own), pages=pages)

    def principal(self, headers: Mapping[str, str], token: str, named: str) -> Principal:
        """Return the user for whom a request is made.

        Args:
            token: the one that came in another way than by a header; "" if none came so.
            named: the user that the request names; "" if it does so by a header, or not at all.

        Raises:
            NoProofError: a token is wanted, and none came.
            AccessDeniedError: the token is none.
            InvalidRequestError: no user can be called so.
        """
        if word := token or word_in(headers):
            if not looks_like(word):
                raise AccessDeniedError("what came in the place of a token is none")
            return Principal(unsealed(word)[0].user, word)
        if self.proves:
            raise NoProofError
        return Principal(checked(named or headers.get(USER, "") or NOBODY))

    def acting_for(self, asks: Principal, other: str, address: str) -> Principal:
        """Return the user for whom a request is made in which `asks` acts for `other`.

        Args:
            address: the host at which the connection begins.

        Raises:
            ImpersonationError: `asks` may not.
            InvalidRequestError: no user can be called so.
        """
        if other == asks.user:
            return asks
        self.proxies.check(asks.user, checked(other), address)
        if asks.token:  # a token proves its own user alone
            raise ImpersonationError(f"User: {asks.user} is not allowed to impersonate {other}")
        # The NameNodes, and so the audit log, hear of `other` alone.
        _log.info("acts for another user", extra=facts(user=asks.user, acts_for=other, at=address))
        return Principal(other)
