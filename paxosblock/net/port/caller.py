"""The caller of a connection, as far as the node knows it. No I/O.

Where the caller has proven nothing about itself, it is the user that it claims to be, by the header
`Access-User` of its Upgrade, or of its request if it sends none. That is HDFS's simple mode: it
keeps honest people from each other's files by mistake, and stops no program that lies. Who has
shown a certificate is whom that names, and who has brought a token is its user, whatever else the
caller has shown.
"""

from __future__ import annotations

import enum
from contextvars import ContextVar
from typing import Final, Self

import msgspec

from paxosblock.api.user_tokens import UserToken
from paxosblock.base.user_names import NAME_EXPECTED, is_user
from paxosblock.errors import InvalidRequestError
from paxosblock.host.user import claimed_user
from paxosblock.net.port.certified import CertifiedKind, CertifiedName

USER: Final = "Access-User"
"""The header with the name that a caller claims."""
REQUEST_NAME: Final = "X-Request-Id"
"""The header with the name that logs tell of a request, or of all that comes on a data stream."""
NOBODY: Final = "nobody"
"""The user for whom a caller acts that claims no name."""


class CallerRole(enum.Enum):
    """The kind of a caller, proven or not."""

    CLAIMED = "claimed"
    """Nothing is proven: a user by the name it claims, or a node of a cluster that demands no proof
    of its nodes."""
    NODE = "node"
    """It knows the secret of nodes, which does not say what kind of node it is."""
    USER = "user"
    DATANODE = "datanode"
    NAMENODE = "namenode"


class Caller(msgspec.Struct, frozen=True, cache_hash=True):
    """The other end of a connection, made once for each; `user` of a proven node is its id."""

    role: CallerRole
    user: str
    groups: tuple[str, ...] = ()
    """Those that came with a proof; without one the node looks up the user's groups."""
    address: str = ""
    """The host at which the connection begins."""
    token: UserToken | None = None
    """The token that the caller brought, which bounds what they may do."""
    private: bool = False
    """True if no other can read what the caller is sent: by TLS, or on one machine."""

    @classmethod
    def claiming(cls, user: str | None, address: str, *, private: bool = False) -> Self:
        """Make the one that has proven nothing and claims to be `user`; None: it says nothing.

        Raises:
            InvalidRequestError: no user can be called so.
        """
        name = NOBODY if user is None else checked(user)
        return cls(CallerRole.CLAIMED, name, (), address, private=private)

    @classmethod
    def certified(cls, name: CertifiedName, address: str, *, private: bool = False) -> Self:
        """Make the holder of a certificate with this name. Raises as `claiming`."""
        user = checked(name.name) if name.kind is CertifiedKind.USER else name.name
        return cls(CallerRole(name.kind.value), user, name.groups, address, private=private)

    @classmethod
    def with_token(cls, token: UserToken, address: str, *, private: bool = False) -> Self:
        """Make the one who has brought a token that was checked."""
        return cls(CallerRole.USER, token.user, token.groups, address, token, private=private)


NODES: Final = (CallerRole.NODE, CallerRole.DATANODE, CallerRole.NAMENODE)
"""The roles of nodes."""
HERE: Final = Caller(CallerRole.NAMENODE, "", private=True)
"""This process itself, which may do everything."""
UNTOLD: Final = Caller(CallerRole.CLAIMED, NOBODY)
"""The caller where no door has told one: a door that forgets to do so must let none in."""
CALLER: ContextVar[Caller] = ContextVar("paxosblock_caller", default=UNTOLD)
"""The caller of the call that is being answered, or of the stream that is being made."""
REQUEST_ID: ContextVar[str] = ContextVar("paxosblock_request_id")
"""The name of the call that is being answered, or of the stream."""


def claim(user: str) -> dict[str, str]:
    """Return the header by which a caller claims to be `user`; "": the one who runs it.

    Raises:
        InvalidRequestError: no user can be called so.
    """
    return {USER: checked(user or claimed_user())}


def checked(user: str) -> str:
    """Return the name of a user. Raises InvalidRequestError if no user can be called so."""
    if not is_user(user):
        raise InvalidRequestError(f"{user[:40]!r} is no name of a user: {NAME_EXPECTED}")
    return user
