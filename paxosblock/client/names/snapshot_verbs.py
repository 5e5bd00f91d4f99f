"""The calls of a client about snapshots of directories, and about the window of history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paxosblock.api import snapshot_calls as calls
from paxosblock.api.namenode import STAT, FileStatus, PathRequest
from paxosblock.api.snapshot_calls import SnapshotDifference, SnapshotStatus
from paxosblock.base.paths import ROOT, AnyPath, text_of
from paxosblock.client.names.as_of import When, as_of
from paxosblock.client.names.below import kept_room, snapshot_diff
from paxosblock.client.names.walk import base_name

if TYPE_CHECKING:
    from paxosblock.client.session.shared_session import SharedSession


class AsyncSnapshots:
    """The part of an `AsyncClient` that is about the past."""

    _session: SharedSession

    # -- snapshots ------------------------------------------------------------------------------

    async def create_snapshot(self, path: AnyPath, name: str = "") -> str:
        """Take a snapshot of a directory; return the path, `path/.snapshot/name`, at which what is
        below it now can be read. `name` "": HDFS's name for this time. Nothing is copied, and what
        is deleted from now on keeps its room. Of a file that is being written it shows what the
        last close left, and blocks that others follow.

        Raises NotFoundError, NotDirectoryError, ExistsError, PermissionDeniedError.
        """
        request = calls.CreateSnapshot(text_of(path), name)
        return (await self._session.namenodes.call_once(calls.CREATE_SNAPSHOT, request)).path

    async def delete_snapshot(self, path: AnyPath, name: str) -> None:
        """Delete a snapshot of a directory. Raises NotFoundError, PermissionDeniedError."""
        request = calls.DeleteSnapshot(text_of(path), name)
        await self._session.namenodes.call_once(calls.DELETE_SNAPSHOT, request)

    async def rename_snapshot(self, path: AnyPath, name: str, new_name: str) -> None:
        """Rename a snapshot. Raises NotFoundError, ExistsError, PermissionDeniedError."""
        request = calls.RenameSnapshot(text_of(path), name, new_name)
        await self._session.namenodes.call_once(calls.RENAME_SNAPSHOT, request)

    async def list_snapshots(self, path: AnyPath) -> tuple[SnapshotStatus, ...]:
        """Return the snapshots of a directory, the oldest first. Raises NotFoundError."""
        request = calls.ListSnapshots(text_of(path))
        return (await self._session.namenodes.call(calls.LIST_SNAPSHOTS, request)).snapshots

    async def snapshot_diff(
        self, path: AnyPath, before: str, later: str = ""
    ) -> list[SnapshotDifference]:
        """Return what differs in a directory between two of its snapshots, in HDFS's order; "" is
        what is there now.

        Raises NotFoundError, NotDirectoryError, PermissionDeniedError.
        """
        namenodes = self._session.namenodes

        async def ask(request: calls.DiffSnapshots) -> calls.SnapshotDifferences:
            return await namenodes.call(calls.DIFF_SNAPSHOTS, request)

        return await snapshot_diff(ask, text_of(path), before, later)

    async def kept_room(self, path: AnyPath, name: str) -> int:
        """Return the bytes on DataNodes that would be free if a snapshot went: all replicas of
        blocks that nothing shows but it, as far as what was deleted has been swept, behind the
        scenes. Raises NotFoundError, PermissionDeniedError."""
        namenodes = self._session.namenodes

        async def ask(request: calls.AskKeptRoom) -> calls.SnapshotRoom:
            return await namenodes.call(calls.KEPT_ROOM, request)

        return await kept_room(ask, text_of(path), name)

    # -- history --------------------------------------------------------------------------------

    async def as_of(self, at: When) -> str:
        """Return the path below which the whole cluster is read as it was at a time, where the
        NameNodes keep a history: `fs.open(fs.as_of("2h") + "/table/part-0")`. It names a revision,
        so all that is read there is of one moment.

        Args:
            at: as for `open`; what was changed in the second before may be in it.

        Raises:
            NotFoundError: no history is kept, or it begins later.
            InvalidRequestError: it is no time, or has not come yet.
        """
        return (await self._session.namenodes.call(STAT, PathRequest(as_of(ROOT, at)))).path

    async def _then(self, path: AnyPath, at: When | None) -> str:
        """Return the path at which is read what was at `path` then; None: `path` itself. Raises as
        `as_of`, also where a call would take a history that is not kept for a name that is not
        there."""
        return as_of(path, None if at is None else base_name(await self.as_of(at)))

    async def undelete(self, path: AnyPath) -> FileStatus:
        """Bring back what was removed last under a path, with all that was below it, where the
        NameNodes keep a history. Nothing is copied, however much it is.

        Raises:
            NotFoundError: nothing of this name was removed in the history that is kept, or the
                directory above is not there.
            ExistsError: something is there.
            InvalidRequestError: no history is kept; or it was renamed, its blocks are in another
                file, it was being written, or a quota would have to count it first.
            PermissionDeniedError: it was another user's, or the directory above is not writable.
        """
        request = calls.Undelete(text_of(path))
        return await self._session.namenodes.call_once(calls.UNDELETE, request)
