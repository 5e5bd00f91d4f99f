"""The facts about a path that fsspec asks for, as a plain dictionary."""

from __future__ import annotations

import hashlib
import stat
from typing import Any

from paxosblock.api.namenode import FileStatus, Kind

Info = dict[str, Any]


def info_of(status: FileStatus) -> Info:
    """`name`, `size` in bytes, `type`, times in seconds since the epoch, and our own facts."""
    directory = status.kind is Kind.DIRECTORY
    return {
        "name": status.path,
        "size": 0 if directory else status.size,
        "type": "directory" if directory else "file",
        "created": status.created_s,
        "mtime": status.modified_s,
        "mode": (stat.S_IFDIR if directory else stat.S_IFREG) | status.permission,
        "owner": status.owner,
        "group": status.group,
        "file_id": status.file_id,
        "replication": status.replication,
        "block_size": status.block_size,
        "durability": status.durability.value,
        "open": status.open,
        "encrypted": status.encrypted,
    }


def ukey_of(status: FileStatus) -> str:
    """Return a text that differs if the content may differ: a file id is never used again, bytes
    never change in place, an append shows in the length, and a cut in the truncations.
    """
    facts = f"{status.file_id} {status.size} {status.truncations} {status.modified_s}"
    return hashlib.sha256(facts.encode()).hexdigest()
