"""Files as replicated blocks, by consensus.

::

    from paxosblock import Client, LocalCluster

    with LocalCluster(datanodes=3) as cluster, Client(cluster.url) as fs:
        with fs.create("/greeting") as out:
            out.write(b"hello")

The names below are imported when they are first used, so that `import paxosblock` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paxosblock.base.lazy import lazy_names

if TYPE_CHECKING:
    from paxosblock.api.namenode import BlockMember, BlockView, FileStatus, Kind, Listing
    from paxosblock.api.transaction import (
        AssertAbsent,
        AssertFile,
        Concat,
        Delete,
        MakeDirectory,
        Marker,
        Operation,
        Rename,
        TransactionOutcome,
        Truncate,
    )
    from paxosblock.base.replacement import OnFailure, Replacement, WriteOptions
    from paxosblock.client.async_client import AsyncClient
    from paxosblock.client.block_verbs import AsyncBlockVerbs
    from paxosblock.client.blocking.sync import BlockVerbs, Client, DataNode, FileReader, FileWriter
    from paxosblock.client.check import BlockCheck, ReplicaCheck, ReplicaHealth
    from paxosblock.client.datanode_verbs import AsyncDataNode
    from paxosblock.client.reading.file_reader import AsyncFileReader
    from paxosblock.client.reading.length import Consistency
    from paxosblock.client.reading.locations import BlockLocation
    from paxosblock.client.writing.file_writer import AsyncFileWriter
    from paxosblock.client.writing.receipt import BlockReceipt, FlushReceipt
    from paxosblock.config import ClientConfig
    from paxosblock.errors import (
        AccessDeniedError,
        ConfigError,
        CorruptionError,
        DeadlineError,
        DirectoryNotEmptyError,
        ExistsError,
        FencedError,
        InvalidRequestError,
        IsDirectoryError,
        LeaseError,
        NoSpaceError,
        NotDirectoryError,
        NotFoundError,
        NotLeaderError,
        NotReadyError,
        Outcome,
        OutcomeUnknownError,
        PaxosBlockError,
        ProtocolError,
        SafeModeError,
        StorageError,
        TruncatedError,
        UnavailableError,
    )
    from paxosblock.local.cluster import LocalCluster
    from paxosblock.protocol.types import BlockId, ChunkIndex, Durability, Generation

    __version__: str

__all__ = [
    "AccessDeniedError",
    "AssertAbsent",
    "AssertFile",
    "AsyncBlockVerbs",
    "AsyncClient",
    "AsyncDataNode",
    "AsyncFileReader",
    "AsyncFileWriter",
    "BlockCheck",
    "BlockId",
    "BlockLocation",
    "BlockMember",
    "BlockReceipt",
    "BlockVerbs",
    "BlockView",
    "ChunkIndex",
    "Client",
    "ClientConfig",
    "Concat",
    "ConfigError",
    "Consistency",
    "CorruptionError",
    "DataNode",
    "DeadlineError",
    "Delete",
    "DirectoryNotEmptyError",
    "Durability",
    "ExistsError",
    "FencedError",
    "FileReader",
    "FileStatus",
    "FileWriter",
    "FlushReceipt",
    "Generation",
    "InvalidRequestError",
    "IsDirectoryError",
    "Kind",
    "LeaseError",
    "Listing",
    "LocalCluster",
    "MakeDirectory",
    "Marker",
    "NoSpaceError",
    "NotDirectoryError",
    "NotFoundError",
    "NotLeaderError",
    "NotReadyError",
    "OnFailure",
    "Operation",
    "Outcome",
    "OutcomeUnknownError",
    "PaxosBlockError",
    "ProtocolError",
    "Rename",
    "Replacement",
    "ReplicaCheck",
    "ReplicaHealth",
    "SafeModeError",
    "StorageError",
    "TransactionOutcome",
    "Truncate",
    "TruncatedError",
    "UnavailableError",
    "WriteOptions",
    "__version__",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AccessDeniedError": "paxosblock.errors",
        "AssertAbsent": "paxosblock.api.transaction",
        "AssertFile": "paxosblock.api.transaction",
        "AsyncBlockVerbs": "paxosblock.client.block_verbs",
        "AsyncClient": "paxosblock.client.async_client",
        "AsyncDataNode": "paxosblock.client.datanode_verbs",
        "AsyncFileReader": "paxosblock.client.reading.file_reader",
        "AsyncFileWriter": "paxosblock.client.writing.file_writer",
        "BlockCheck": "paxosblock.client.check",
        "BlockId": "paxosblock.protocol.types",
        "BlockLocation": "paxosblock.client.reading.locations",
        "BlockMember": "paxosblock.api.namenode",
        "BlockReceipt": "paxosblock.client.writing.receipt",
        "BlockVerbs": "paxosblock.client.blocking.sync",
        "BlockView": "paxosblock.api.namenode",
        "ChunkIndex": "paxosblock.protocol.types",
        "Client": "paxosblock.client.blocking.sync",
        "ClientConfig": "paxosblock.config",
        "Concat": "paxosblock.api.transaction",
        "ConfigError": "paxosblock.errors",
        "Consistency": "paxosblock.client.reading.length",
        "CorruptionError": "paxosblock.errors",
        "DataNode": "paxosblock.client.blocking.sync",
        "DeadlineError": "paxosblock.errors",
        "Delete": "paxosblock.api.transaction",
        "DirectoryNotEmptyError": "paxosblock.errors",
        "Durability": "paxosblock.protocol.types",
        "ExistsError": "paxosblock.errors",
        "FencedError": "paxosblock.errors",
        "FileReader": "paxosblock.client.blocking.sync",
        "FileStatus": "paxosblock.api.namenode",
        "FileWriter": "paxosblock.client.blocking.sync",
        "FlushReceipt": "paxosblock.client.writing.receipt",
        "Generation": "paxosblock.protocol.types",
        "InvalidRequestError": "paxosblock.errors",
        "IsDirectoryError": "paxosblock.errors",
        "Kind": "paxosblock.api.namenode",
        "LeaseError": "paxosblock.errors",
        "Listing": "paxosblock.api.namenode",
        "LocalCluster": "paxosblock.local.cluster",
        "MakeDirectory": "paxosblock.api.transaction",
        "Marker": "paxosblock.api.transaction",
        "NoSpaceError": "paxosblock.errors",
        "NotDirectoryError": "paxosblock.errors",
        "NotFoundError": "paxosblock.errors",
        "NotLeaderError": "paxosblock.errors",
        "NotReadyError": "paxosblock.errors",
        "OnFailure": "paxosblock.base.replacement",
        "Operation": "paxosblock.api.transaction",
        "Outcome": "paxosblock.errors",
        "OutcomeUnknownError": "paxosblock.errors",
        "PaxosBlockError": "paxosblock.errors",
        "ProtocolError": "paxosblock.errors",
        "Rename": "paxosblock.api.transaction",
        "Replacement": "paxosblock.base.replacement",
        "ReplicaCheck": "paxosblock.client.check",
        "ReplicaHealth": "paxosblock.client.check",
        "SafeModeError": "paxosblock.errors",
        "StorageError": "paxosblock.errors",
        "TransactionOutcome": "paxosblock.api.transaction",
        "Truncate": "paxosblock.api.transaction",
        "TruncatedError": "paxosblock.errors",
        "UnavailableError": "paxosblock.errors",
        "WriteOptions": "paxosblock.base.replacement",
        "__version__": "paxosblock.base.version",
    },
)
