"""The calls of a client about changes of names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from paxosblock.api.watching import NameChange, NameChanges
from paxosblock.base.paths import AnyPath, text_of
from paxosblock.client.names.watch import next_changes, watcher

if TYPE_CHECKING:
    from paxosblock.client.session.shared_session import SharedSession


class AsyncWatching:
    """The part of an `AsyncClient` that tells of changes."""

    _session: SharedSession

    def watch(
        self, path: AnyPath, *, after: int | None = None, listed: bool = False
    ) -> AsyncIterator[NameChange]:
        """Yield each change of names at `path` and below it, once and in order, without end.

        Changes with one revision happened at one moment: who keeps a copy of the names takes away
        first what was removed or renamed, the deepest first. A program that lists something
        (`Listing` and `KeyListing` tell the revision) and watches `after` that revision misses
        nothing and hears nothing twice, whichever NameNodes fail meanwhile. Nothing need be at
        `path`. What the user may not list is not told.

        Args:
            after: the revision behind which to begin; None: what is changed from the first step of
                the iteration on.
            listed: yield first what is there, as `ChangeKind.LISTED`; a gap is then a change of
                the kind `GAP`, behind which all that is there is listed again.

        Raises:
            GapError: changes behind `after` are no longer known: list again, and go on from there.
            InvalidRequestError: `after` is no revision yet; `after` and `listed` are both given.
            UnavailableError: no NameNode answered for `retry_for_s`.
        """
        return watcher(self._session, text_of(path), after, listed=listed).run()

    async def changes(
        self, path: AnyPath, after: NameChanges | int | None = None, *, wait_s: float = 0.0
    ) -> NameChanges:
        """Return some of the changes that `watch` yields, for a program that asks now and then.

        Args:
            after: the answer, or the revision, behind which to go on; None: tell only the place
                behind all changes that were made before this call.
            wait_s: how long to wait for a change if there is none yet; at most half of the
                client's `rpc_timeout_s`.

        Raises:
            GapError: changes behind `after` are no longer known: list again, and go on from there.
            InvalidRequestError: `after` is no revision yet.
            UnavailableError: no NameNode answered for `retry_for_s`.
        """
        return await next_changes(self._session, text_of(path), after, wait_s)
