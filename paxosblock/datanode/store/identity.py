"""The identity of a volume: its `VERSION` file (FORMAT.md 2).

A storage id is a promise: a node that answers under it has everything it ever promised or voted, or
names the blocks for which it may not. So a folder gets its id once, when it is empty, and a folder
with blocks but no id is refused.
"""

from __future__ import annotations

import re
import secrets
import socket
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import FROM_A_SNAPSHOT, refuse_later
from paxosblock.datanode.store.disk_format import Forgot
from paxosblock.datanode.store.layout import SMALL
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.host.disk import Disk, publish, read_file
from paxosblock.protocol.types import BlockId, StorageId

FORMAT: Final = 5
WITH_ALL: Final = 4
"""The format of a volume that has forgotten nothing."""
WITHOUT_SMALL: Final = 3
"""The format of a volume without a log of small replicas, which an earlier version left."""
WITHOUT_TIMELINE: Final = 2
"""The format of a volume that never had a snapshot."""
WITHOUT_CLUSTER: Final = 1
"""The format of a volume that never registered, either."""
VERSION: Final = "VERSION"

_ANY_FORMAT = re.compile(rb"format=(\d{1,9})\n(?:.*\n)*crc=([0-9a-f]{8})\n")
_LINES = re.compile(
    r"format=(\d{1,9})\nstorage=(\S{1,200})\nnode=(\S{1,200})\n"
    r"(?:cluster=(\S{1,200})\n)?(?:timeline=(\S{0,200})\n)?(?:before=(\S{0,2000})\n)?"
    r"(?:small=(1)\n)?(?:forgot=(\d{1,20}),(\d{1,20})\n)?crc=[0-9a-f]{8}\n"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The storage that a folder is, the node it belongs to, and its cluster, "" before it had one.

    Every snapshot begins a new `timeline`, which a rollback ends; "" is the first. While there are
    timelines in `before`, no NameNode has said that it knows of this one: the cluster knows the
    storage in one of those, and nothing may be promised or reported meanwhile (FORMAT.md 7).
    """

    storage: StorageId
    node: str
    cluster: str = ""
    timeline: str = ""
    before: tuple[str, ...] = ()
    small: bool = False
    """True if the log of small replicas (FORMAT.md 8) counts."""
    forgot: Forgot | None = None

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        body = f"format={self._format}\nstorage={self.storage}\nnode={self.node}\n"
        if self.cluster:
            body += f"cluster={self.cluster}\n"
        if self.timeline or self.before:
            body += f"timeline={self.timeline}\n"
        if self.before:
            body += f"before={','.join(self.before)}\n"
        if self.small:
            body += "small=1\n"
        if self.forgot is not None:
            body += f"forgot={self.forgot.up_to},{self.forgot.through}\n"
        return f"{body}crc={crc32c(body.encode()):08x}\n".encode()

    @property
    def _format(self) -> int:
        if self.forgot is not None:
            return FORMAT
        if self.small:
            return WITH_ALL
        if self.timeline or self.before:
            return WITHOUT_SMALL
        return WITHOUT_TIMELINE if self.cluster else WITHOUT_CLUSTER

    @property
    def known_in(self) -> tuple[str, ...]:
        """The cluster knows the storage in one of these timelines: an earlier process may have
        reported this one, and ended before the answer came."""
        return tuple(dict.fromkeys((*self.before, self.timeline)))


def decode_identity(data: bytes, path: Path) -> Identity:
    """Return the identity in the bytes of the file at `path`.

    Raises:
        CorruptionError: it is damaged.
        ConfigError: a later version wrote it.
    """
    lines = _ANY_FORMAT.fullmatch(data)
    if lines is None or crc32c(data[: data.rindex(b"crc=")]) != int(lines[2], 16):
        raise CorruptionError(f"{path} is damaged; this volume cannot say who it is")
    refuse_later(path, int(lines[1]), FORMAT, FROM_A_SNAPSHOT)
    found = _LINES.fullmatch(data.decode("utf-8", "replace"))
    identity = found and Identity(
        storage=StorageId(found[2]),
        node=found[3],
        cluster=found[4] or "",
        timeline=found[5] or "",
        before=() if found[6] is None else tuple(found[6].split(",")),
        small=found[7] is not None,
        forgot=Forgot(BlockId(int(found[8])), int(found[9])) if found[8] else None,
    )
    if not identity or int(lines[1]) != identity._format:
        raise CorruptionError(f"{path} is not what format {int(lines[1])} is; it is damaged")
    return identity


def check_node_id(node: str) -> None:
    """Raise ConfigError unless `node` can stand in a `VERSION` file."""
    if re.fullmatch(r"\S{1,200}", node) is None:
        raise ConfigError(f"node id {node!r}: expected 1 to 200 characters without spaces")


def kept_node_id(disk: Disk, folders: Iterable[Path]) -> str | None:
    """Return the id of the node whose volumes these are, as the first that can be read says; None
    if they are new.
    """
    for folder in folders:
        with suppress(OSError):  # opening a broken disk or a damaged identity reports it
            if folder.is_dir() and (identity := read_identity(disk, folder)) is not None:
                return identity.node
    return None


def new_node_id() -> str:
    """Return an id for a node that has none: no other has it, not even one on a copy of this
    machine, and people see where it was made.
    """
    return f"{socket.gethostname()}-{secrets.token_hex(4)}"


def read_identity(disk: Disk, folder: Path) -> Identity | None:
    """Return the identity of the volume at `folder`; None when it has none yet.

    Raises as `decode_identity`.
    """
    if VERSION not in disk.names(folder):
        return None
    return decode_identity(read_file(disk, folder / VERSION), folder / VERSION)


def give_identity(disk: Disk, folder: Path, node: str) -> Identity:
    """Make the volume at `folder`, which holds no blocks, a new storage of `node`, durably."""
    return _replaced(disk, folder, Identity(StorageId(str(uuid.uuid4())), node))


def enter_cluster(disk: Disk, folder: Path, identity: Identity, cluster: str) -> Identity:
    """Make the volume at `folder` one of `cluster`, for ever and durably."""
    assert identity.cluster in {"", cluster}, "a volume belongs to one cluster"
    return _replaced(disk, folder, replace(identity, cluster=cluster))


def begin_timeline(disk: Disk, folder: Path, identity: Identity) -> Identity:
    """Begin a new timeline of the volume at `folder`, durably; no NameNode knows of it."""
    begun = replace(identity, timeline=str(uuid.uuid4()), before=identity.known_in)
    return _replaced(disk, folder, begun)


def return_to(disk: Disk, folder: Path, earlier: Identity) -> Identity:
    """Make the volume at `folder` what it was when it was `earlier`, durably.

    It has forgotten what it promised since, so a cluster must accept it again, one that never knew
    it in a later timeline.
    """
    return _replaced(disk, folder, replace(earlier, before=earlier.known_in))


def begin_small(disk: Disk, folder: Path, identity: Identity) -> Identity:
    """Make the log of small replicas of the volume at `folder` count, durably.

    After a rollback an earlier version runs, and leaves a log that it does not know.
    """
    if identity.small:
        return identity
    for name in disk.names(folder / SMALL):
        disk.remove(folder / SMALL / name)
    disk.sync_folder(folder / SMALL)
    return _replaced(disk, folder, replace(identity, small=True))


def forget(disk: Disk, folder: Path, identity: Identity, forgot: Forgot) -> Identity:
    """Note, durably, what the volume at `folder` may have forgotten."""
    return _replaced(disk, folder, replace(identity, forgot=forgot))


def take_in(disk: Disk, folder: Path, identity: Identity) -> Identity:
    """Note, durably, that the cluster knows the volume at `folder` in its timeline."""
    return _replaced(disk, folder, replace(identity, before=()))


def _replaced(disk: Disk, folder: Path, identity: Identity) -> Identity:
    publish(disk, folder / f"{VERSION}.new", folder / VERSION, [identity.encode()])
    return identity
