"""The identity of a volume: its `VERSION` file (FORMAT.md 2).

A storage id is a promise: whoever answers under it has everything it ever promised or voted. So
a folder gets its id once, when it is empty, and a folder with blocks but no id is refused.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from paxosblock.checksum import crc32c
from paxosblock.disk import Disk, publish, read_file
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.formats import FROM_A_SNAPSHOT, refuse_later
from paxosblock.protocol.types import StorageId

FORMAT: Final = 2
WITHOUT_CLUSTER: Final = 1
"""The format of a volume that never registered."""
VERSION: Final = "VERSION"

_ANY_FORMAT = re.compile(rb"format=(\d{1,9})\n(?:.*\n)*crc=([0-9a-f]{8})\n")
_LINES = re.compile(
    r"format=(\d{1,9})\nstorage=(\S{1,200})\nnode=(\S{1,200})\n"
    r"(?:cluster=(\S{1,200})\n)?crc=([0-9a-f]{8})\n"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The storage a folder is, the node it belongs to, and its cluster, "" before it had one."""

    storage: StorageId
    node: str
    cluster: str = ""

    def encode(self) -> bytes:
        """The bytes of the file."""
        body = f"format={self._format}\nstorage={self.storage}\nnode={self.node}\n"
        if self.cluster:
            body += f"cluster={self.cluster}\n"
        return f"{body}crc={crc32c(body.encode()):08x}\n".encode()

    @property
    def _format(self) -> int:
        return FORMAT if self.cluster else WITHOUT_CLUSTER


def decode_identity(data: bytes, path: Path) -> Identity:
    """The identity in the bytes of the file at `path`.

    Raises:
        CorruptionError: it is damaged.
        ConfigError: a later version wrote it.
    """
    lines = _ANY_FORMAT.fullmatch(data)
    if lines is None or crc32c(data[: data.rindex(b"crc=")]) != int(lines[2], 16):
        raise CorruptionError(f"{path} is damaged; this volume cannot say who it is")
    refuse_later(path, int(lines[1]), FORMAT, FROM_A_SNAPSHOT)
    found = _LINES.fullmatch(data.decode("utf-8", "replace"))
    identity = found and Identity(StorageId(found[2]), found[3], found[4] or "")
    if not identity or int(lines[1]) != identity._format:
        raise CorruptionError(f"{path} is not what format {int(lines[1])} is; it is damaged")
    return identity


def check_node_id(node: str) -> None:
    """Raise ConfigError unless `node` can stand in a `VERSION` file."""
    if re.fullmatch(r"\S{1,200}", node) is None:
        raise ConfigError(f"node id {node!r}: expected 1 to 200 characters without spaces")


def read_identity(disk: Disk, folder: Path) -> Identity | None:
    """The identity of the volume at `folder`; None when it has none yet.

    Raises as `decode_identity`.
    """
    if VERSION not in disk.names(folder):
        return None
    return decode_identity(read_file(disk, folder / VERSION), folder / VERSION)


def give_identity(disk: Disk, folder: Path, node: str) -> Identity:
    """Make the volume at `folder`, which holds no blocks, a new storage of `node`, durably."""
    identity = Identity(StorageId(str(uuid.uuid4())), node)
    publish(disk, folder / f"{VERSION}.new", folder / VERSION, [identity.encode()])
    return identity


def enter_cluster(disk: Disk, folder: Path, identity: Identity, cluster: str) -> Identity:
    """Make the volume at `folder` one of `cluster`, for ever and durably."""
    assert identity.cluster in {"", cluster}, "a volume belongs to one cluster"
    entered = replace(identity, cluster=cluster)
    publish(disk, folder / f"{VERSION}.new", folder / VERSION, [entered.encode()])
    return entered
