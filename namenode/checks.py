"""What a request must look like before anything is done for it; the types are checked already."""

from __future__ import annotations

from paxosblock.config import NameNodeConfig
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.records import RECOVERY_WRITER
from paxosblock.namenode_api import (
    NO_FILE,
    AddBlock,
    CreateFile,
    FinalizeBlock,
    MakeDirectories,
    Register,
)
from paxosblock.protocol.types import WriterId

REPLICATION_MAX = 32
WINDOW_MAX = 1024
WRITER_CHARACTERS_MAX = 128
PERMISSION_MAX = 0o1777


def check_create(request: CreateFile) -> None:
    """Raise InvalidRequestError when a file cannot be made like this."""
    _check_writer(request.writer)
    _check_replication(request.replication)
    _check_permission(request.permission)
    _demand(request.block_size > 0, f"'{request.path}': block size {request.block_size} bytes")


def check_directory(request: MakeDirectories) -> None:
    """Raise InvalidRequestError when a directory cannot be made like this."""
    _check_permission(request.permission)


def check_add_block(request: AddBlock) -> None:
    """Raise InvalidRequestError when a block cannot be made like this."""
    _check_writer(request.writer)
    _demand(1 <= request.window <= WINDOW_MAX, f"window {request.window}: 1 to {WINDOW_MAX} chunks")
    if request.file_id == NO_FILE:
        _check_replication(request.replication)


def check_finalize(request: FinalizeBlock, config: NameNodeConfig) -> None:
    """Raise InvalidRequestError for a length that no block has."""
    _check_writer(request.writer)
    length, size = request.length, request.size_bytes
    _demand(
        0 <= length <= config.max_chunks_per_block,
        f"block {request.block}: {length} chunks; a block has at most "
        f"{config.max_chunks_per_block}",
    )
    # A chunk may be empty: a writer sends one to have those before it synced.
    _demand(
        size >= 0 and (length > 0 or size == 0),
        f"block {request.block}: {length} chunks cannot have {size} bytes",
    )


def check_register(request: Register) -> None:
    """Raise InvalidRequestError for a DataNode that cannot be told apart or reached."""
    _demand(bool(request.node), "a DataNode registers under a name")
    host, colon, port = request.address.rpartition(":")
    _demand(
        bool(host and colon) and port.isdecimal(),
        f"DataNode {request.node}: '{request.address}' is not an address: host:port",
    )
    storages = [report.storage for report in request.storages]
    _demand(all(storages), f"DataNode {request.node}: a storage has no id")
    _demand(
        len(set(storages)) == len(storages), f"DataNode {request.node}: two storages have one id"
    )


def _check_writer(writer: WriterId) -> None:
    _demand(
        0 < len(writer) <= WRITER_CHARACTERS_MAX,
        f"a writer's id has 1 to {WRITER_CHARACTERS_MAX} characters",
    )
    _demand(writer != RECOVERY_WRITER, f"'{RECOVERY_WRITER}' is not a client's writer id")


def _check_replication(replication: int) -> None:
    _demand(
        1 <= replication <= REPLICATION_MAX,
        f"replication {replication}: 1 to {REPLICATION_MAX} replicas",
    )


def _check_permission(permission: int) -> None:
    _demand(
        0 <= permission <= PERMISSION_MAX,
        f"permission {permission:o}: 0 to {PERMISSION_MAX:o} (octal)",
    )


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidRequestError(message)
