"""The file `joined` of a cluster that grew: who had the catalog first, and whom this member let in.

first=ADDRESS        "-" until the first start of that member, which writes its address
ADDRESS/TOKEN        of a folder that was let in; without the token: of a member heard of
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from paxosblock.host.disk import Disk
from paxosblock.namenode.raft.folder_admission import Admissions
from paxosblock.namenode.raft.member_folder import read_lines, write_lines

JOINED: Final = "joined"
UNNAMED: Final = "-"
_FIRST = "first="


def read_admissions(disk: Disk, folder: Path) -> Admissions:
    """Return the admissions in a member's folder. Raises as `read_lines`."""
    lines = read_lines(disk, folder / JOINED) if JOINED in disk.names(folder) else []
    first = "".join(line.removeprefix(_FIRST) for line in lines[:1] if line.startswith(_FIRST))
    others = (line.partition("/") for line in lines if not line.startswith(_FIRST))
    return Admissions(first, {member: token for member, _, token in others})


def write_admissions(disk: Disk, folder: Path, admissions: Admissions) -> None:
    """Record the admissions durably."""
    lines = [f"{member}/{token}" for member, token in sorted(admissions.tokens.items())]
    first = [f"{_FIRST}{admissions.first}"] if admissions.first else []
    write_lines(disk, folder / JOINED, [*first, *lines])
