"""The tokens of users (`api/user_tokens.py`) at one NameNode, whichever leads: it checks them by
what was applied here, tells DataNodes how to check them, and as the leader issues and revokes them.
"""

from __future__ import annotations

import secrets

from paxosblock.api.capability import BlockKey
from paxosblock.api.methods import Done
from paxosblock.api.user_tokens import (
    IssueToken,
    ListTokens,
    RevokeToken,
    SignedFor,
    TokenIssued,
    TokenKeys,
    TokenList,
    TokenNote,
    TokenRight,
    UserToken,
    check,
    key_at,
    revoked,
    seal,
    token_of,
)
from paxosblock.errors import AccessDeniedError, InvalidRequestError, PermissionDeniedError
from paxosblock.namenode.catalog import block_keys, keys, token_records
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.permissions import Actor, check_superuser
from paxosblock.net.port.caller import HERE, NODES, Caller


class TokenDesk:
    """All that a NameNode does with tokens."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._revision = -1
        self._keys: dict[int, bytes] = {}
        """The keys of NameNodes as they were written at `_revision`."""

    # -- who brings one ---------------------------------------------------------------------------

    async def check(self, word: str) -> UserToken:
        """Return the token that a caller brings.

        Raises:
            AccessDeniedError: it is none of this cluster, has ended, or was revoked.
            UnavailableError: it may be one, but this NameNode does not reach the leader.
        """
        try:
            token = check(word, SignedFor.NAMENODE, self._key, self._now_s())
        except _UnknownKeyError:  # it was made a moment ago, and is not applied here yet
            await self._catalog.view(anywhere=True)
            token = check(word, SignedFor.NAMENODE, self._known().get, self._now_s())
        self._refuse_revoked(token)
        return token

    def allow(self, token: UserToken, right: TokenRight, what: str) -> None:
        """Check one call of a connection that was opened with a token.

        Raises:
            AccessDeniedError: it lacks this right, has ended, or was revoked.
        """
        token.demand(right, what)
        token.check_end(self._now_s())
        self._refuse_revoked(token)

    def told(self, at: int) -> TokenKeys | None:
        """Return what a DataNode must know to check tokens, which knows what it was told last `at`;
        None: that is all."""
        reads = self._catalog.applied
        now_at = token_records.told_at(reads)
        if now_at <= at:
            return None
        found = block_keys.find(reads, keys.TOKEN_KEYS).keys
        own = tuple(key_at(each, SignedFor.DATANODE) for each in found)
        return TokenKeys(now_at, own, token_records.revoked_serials(reads))

    def _key(self, number: int) -> bytes:
        found = self._known().get(number)
        if found is None:
            raise _UnknownKeyError
        return found

    def _known(self) -> dict[int, bytes]:
        found = self._catalog.applied.get(keys.TOKEN_KEYS)
        if found.revision != self._revision:
            made = block_keys.find(self._catalog.applied, keys.TOKEN_KEYS).keys
            self._keys = {each.id: key_at(each, SignedFor.NAMENODE).key for each in made}
            self._revision = found.revision
        return self._keys

    def _refuse_revoked(self, token: UserToken) -> None:
        if token_records.is_revoked(self._catalog.applied, token.serial):
            raise revoked(token)

    def _now_s(self) -> float:
        return self._catalog.now_ms() / 1000

    # -- calls ------------------------------------------------------------------------------------

    async def issue(self, request: IssueToken, caller: Caller, actor: Actor) -> TokenIssued:
        """Make a token.

        Raises:
            AccessDeniedError: the caller is a node, or has a token with fewer rights.
            PermissionDeniedError: it is for another user or other groups than the caller's.
            InvalidRequestError: the user has too many tokens.
        """
        if caller.role in NODES and caller is not HERE:
            raise AccessDeniedError("a token is of a user, and this caller is a node")
        user, own = request.user or caller.user, caller.token
        if not user:
            raise InvalidRequestError("a token is of a user: name one")
        if own is not None:
            own.demand(TokenRight(request.rights), "a token with it")
            if user != own.user:
                own.demand(TokenRight.ADMIN, "a token of another user")
        if user != caller.user:
            check_superuser(actor)
        now_s = int(self._now_s())
        until_s = now_s + max(1, int(request.for_s))
        note = TokenNote(
            0,
            secrets.randbits(64),
            user,
            _groups(request, caller, actor),
            request.rights,
            until_s if own is None else min(until_s, own.until_s),
            now_s,
            request.purpose,
        )
        if request.again:
            view = await self._catalog.view()
            before = token_records.issued_before(view, note)
            signing = None if before is None else self._signing(before.key)
            if before is not None and signing is not None:
                return TokenIssued(seal(token_of(before), signing), before)
        note, signing = await self._catalog.issue_token(note)
        return TokenIssued(seal(token_of(note), signing), note)

    def _signing(self, number: int) -> BlockKey | None:
        found = block_keys.find(self._catalog.applied, keys.TOKEN_KEYS).keys
        return next((each for each in found if each.id == number), None)

    async def show(self, _: ListTokens, caller: Caller, actor: Actor) -> TokenList:
        """Show the tokens that the caller may revoke."""
        whose = None if _is_operator(caller, actor) else caller.user
        reads, now_s = await self._catalog.view(), int(self._now_s())
        return TokenList(tuple(token_records.listed(reads, now_s, whose)))

    async def revoke(self, request: RevokeToken, caller: Caller, actor: Actor) -> Done:
        """Revoke a token.

        Raises:
            NotFoundError: there is none, or the caller may not.
            AccessDeniedError: the caller has a token without the right `admin`, and it is another.
        """
        own = caller.token
        if own is not None and own.serial != request.serial:
            own.demand(TokenRight.ADMIN, "to revoke another token")
        whose = None if _is_operator(caller, actor) else caller.user
        await self._catalog.revoke_token(request.serial, whose)
        return Done()


class _UnknownKeyError(Exception):
    """A token was signed with a key that is not known here."""


def _is_operator(caller: Caller, actor: Actor) -> bool:
    """True if the caller may do everything with the tokens of all users."""
    token = caller.token
    return actor.superuser and (token is None or bool(token.rights & TokenRight.ADMIN))


def _groups(request: IssueToken, caller: Caller, actor: Actor) -> tuple[str, ...]:
    """Return the groups of a token; none: the NameNode that is asked looks them up.

    Raises:
        PermissionDeniedError: the caller is not in all of them, and no superuser.
    """
    if request.user not in ("", caller.user):
        return request.groups
    strange = {*request.groups} - (frozenset(caller.groups) or actor.groups)
    if strange and not _is_operator(caller, actor):
        named = ", ".join(sorted(strange))
        raise PermissionDeniedError(f"{caller.user} is not in the group {named}")
    return request.groups or caller.groups
