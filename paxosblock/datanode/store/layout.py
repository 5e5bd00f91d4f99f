"""Names of a volume's folders and files (FORMAT.md 1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from paxosblock.datanode.store.disk_format import Stored
from paxosblock.host.disk import Disk
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, Generation, ReplicaState

RBW: Final = "rbw"
CURRENT: Final = "current"
TEMPORARY: Final = "tmp"
SPARE: Final = "spare"
LOCK: Final = "lock"
SMALL: Final = "small"
REPLICA_FOLDERS: Final = (CURRENT, RBW, SMALL)
FOLDERS: Final = (*REPLICA_FOLDERS, TEMPORARY)

_NAME = re.compile(
    r"blk_(0|[1-9][0-9]{0,19})(?:(\.meta)|(?:_([1-9][0-9]{0,18}))?(?:\.([1-9][0-9]{0,8}))?)"
)
_STEM = re.compile(r"blk_(0|[1-9][0-9]{0,19})")
_META: Final = ".meta"
_BLOCK_MAX: Final = 2**64 - 1


def home(state: ReplicaState) -> str:
    """Return the folder that replicas of this state live in."""
    return CURRENT if state is ReplicaState.FINALIZED else RBW


def data_name(block: BlockId, epoch: Generation, copy: int) -> str:
    """Return the name of the block file; a full copy that replaces another one has the next `copy`.

    It also has the `epoch` of the log, for when the meta file is damaged (D9).
    """
    stem = f"blk_{block}_{epoch}" if epoch else f"blk_{block}"
    return f"{stem}.{copy}" if copy else stem


def own_draft(volume: Path, path: Path) -> Path:
    """Return where a block file is made before it takes the name `path`."""
    return volume / TEMPORARY / f"{path.name}.own"


def meta_name(block: BlockId) -> str:
    """Return the name of the meta file."""
    return f"blk_{block}{_META}"


@dataclass(frozen=True, slots=True)
class ReplicaFiles(Stored):
    """The block file of a replica, and which one of its copies that is."""

    folder: Path
    name: str
    copy: int

    @property
    def path(self) -> Path:
        """Made when it is asked for: there may be very many replicas, and a path is large."""
        return self.folder / self.name


def copy_of(files: Stored) -> int:
    """Return the number by which `damaged` refers to what is there of a block."""
    return files.copy if isinstance(files, ReplicaFiles) else 0


class FoundFile(NamedTuple):
    """A meta or block file's place, and what the name of a block file tells."""

    folder: Path
    name: str
    copy: int = 0
    epoch: Generation = FIRST_GENERATION

    @property
    def path(self) -> Path:
        return self.folder / self.name


class BlockFiles(NamedTuple):
    """Every file there is of one block, in any folder; more than one of a kind after a crash."""

    block: BlockId
    metas: list[FoundFile]
    datas: list[FoundFile]

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in (*self.metas, *self.datas)]


def by_block(disk: Disk, *folders: Path) -> dict[BlockId, BlockFiles]:
    """Return the block and meta files in `folders`; foreign files are left out."""
    found: dict[BlockId, BlockFiles] = {}
    for folder in folders:
        sort_in(found, folder, disk.names(folder))
    return found


def sort_in(found: dict[BlockId, BlockFiles], folder: Path, names: Iterable[str]) -> None:
    """Add the block and meta files of `folder` that have these `names` to `found`."""
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        number, meta, epoch, copy = match.groups()
        block = BlockId(int(number))
        if block > _BLOCK_MAX:
            continue
        if (files := found.get(block)) is None:
            files = found[block] = BlockFiles(block, [], [])
        if meta:
            files.metas.append(FoundFile(folder, name))
        else:
            kept = Generation(int(epoch)) if epoch else FIRST_GENERATION
            files.datas.append(FoundFile(folder, name, int(copy or 0), kept))


def pairs(names: Sequence[str]) -> tuple[dict[BlockId, str], list[str]]:
    """Return the blocks that have one meta and one block file among the `names` of a folder, each
    with the name of that block file; and the names of all other files.

    There may be millions, so a name is taken apart only if it is an unusual one.
    """
    data = dict.fromkeys((name[: -len(_META)] for name in names if name.endswith(_META)), "")
    others = []
    for name in names:
        if name.endswith(_META):
            continue
        stem = name
        if name not in data:
            match = _STEM.match(name)
            stem = "" if match is None else match[0]
        if data.get(stem) == "":
            data[stem] = name
        else:
            others.append(name)
    for stem in [match[0] for each in others if (match := _STEM.match(each))]:
        if data.get(stem):
            others.append(data[stem])  # one of several block files
            data[stem] = ""
    found: dict[BlockId, str] = {}
    for stem, name in data.items():
        match = _STEM.fullmatch(stem)
        if name and match is not None and (block := BlockId(int(match[1]))) <= _BLOCK_MAX:
            found[block] = name
        else:
            others += [stem + _META, *([name] if name else ())]
    return found, others


def make_folders(disk: Disk, folder: Path) -> None:
    """Make the sub-folders of a volume unless they are there, and all names in it durable: an
    earlier process may have been killed before it synced them, and its `VERSION` is believed."""
    for name in FOLDERS:
        disk.make_folder(folder / name)
    disk.sync_folder(folder)


def holds_blocks(disk: Disk, folder: Path) -> bool:
    """True if something below `folder` looks like a replica's file."""
    present = disk.names(folder)
    parts = [folder / name for name in (CURRENT, RBW) if name in present]
    return bool(by_block(disk, folder, *parts))
