"""Names of a volume's folders and files (FORMAT.md 1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.datanode.store import Stored
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, Generation, ReplicaState

RBW: Final = "rbw"
CURRENT: Final = "current"
TEMPORARY: Final = "tmp"
SPARE: Final = "spare"
LOCK: Final = "lock"
FOLDERS: Final = (CURRENT, RBW, TEMPORARY)

_DATA = re.compile(r"blk_(0|[1-9][0-9]{0,19})(?:_([1-9][0-9]{0,18}))?(?:\.([1-9][0-9]{0,8}))?")
_META = re.compile(r"blk_(0|[1-9][0-9]{0,19})\.meta")
_BLOCK_MAX: Final = 2**64 - 1


def home(state: ReplicaState) -> str:
    """The folder that replicas of this state live in."""
    return CURRENT if state is ReplicaState.FINALIZED else RBW


def data_name(block: BlockId, epoch: Generation, copy: int) -> str:
    """The block file; a full copy that replaces another file of this block gets the next `copy`.

    It tells the `epoch` of the log, too: somebody must know when the meta file is damaged (D9).
    """
    stem = f"blk_{block}_{epoch}" if epoch else f"blk_{block}"
    return f"{stem}.{copy}" if copy else stem


def meta_name(block: BlockId) -> str:
    """The meta file."""
    return f"blk_{block}.meta"


@dataclass(frozen=True, slots=True)
class ReplicaFiles(Stored):
    """The block file of a replica, and which one of its copies that is."""

    path: Path
    copy: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """A block file's place, and what its name tells."""

    path: Path
    copy: int
    epoch: Generation = FIRST_GENERATION


@dataclass(frozen=True, slots=True)
class BlockFiles:
    """Every file there is of one block, in any folder; more than one of a kind after a crash."""

    block: BlockId
    metas: tuple[Path, ...] = ()
    datas: tuple[DataFile, ...] = ()

    def meta_added(self, path: Path) -> BlockFiles:
        """Return these with one more meta file."""
        return BlockFiles(self.block, (*self.metas, path), self.datas)

    def data_added(self, data: DataFile) -> BlockFiles:
        """Return these with one more block file."""
        return BlockFiles(self.block, self.metas, (*self.datas, data))


def by_block(paths: list[Path]) -> dict[BlockId, BlockFiles]:
    """The block and meta files among `paths`; foreign files are left out."""
    found: dict[BlockId, BlockFiles] = {}
    for path in paths:
        meta, data = _META.fullmatch(path.name), _DATA.fullmatch(path.name)
        match = meta or data
        if match is None or int(match[1]) > _BLOCK_MAX:
            continue
        block = BlockId(int(match[1]))
        files = found.get(block, BlockFiles(block))
        if data is None:
            found[block] = files.meta_added(path)
        else:
            epoch, copy = Generation(int(data[2] or FIRST_GENERATION)), int(data[3] or 0)
            found[block] = files.data_added(DataFile(path, copy, epoch))
    return found
