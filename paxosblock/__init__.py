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
    from paxosblock.api.namenode import FileStatus, Listing
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
    from paxosblock.base.replacement import OnFailure, Replacement
    from paxosblock.client import AsyncClient, Client, FlushReceipt
    from paxosblock.client.check import BlockCheck
    from paxosblock.client.reading.length import Consistency
    from paxosblock.client.reading.locations import BlockLocation
    from paxosblock.client.writing.receipt import BlockReceipt
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
    from paxosblock.protocol.types import Durability

    __version__: str

__all__ = [
    "AccessDeniedError",
    "AssertAbsent",
    "AssertFile",
    "AsyncClient",
    "BlockCheck",
    "BlockLocation",
    "BlockReceipt",
    "Client",
    "ClientConfig",
    "Concat",
    "ConfigError",
    "Consistency",
    "CorruptionError",
    "DeadlineError",
    "Delete",
    "DirectoryNotEmptyError",
    "Durability",
    "ExistsError",
    "FencedError",
    "FileStatus",
    "FlushReceipt",
    "InvalidRequestError",
    "IsDirectoryError",
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
    "SafeModeError",
    "StorageError",
    "TransactionOutcome",
    "Truncate",
    "TruncatedError",
    "UnavailableError",
    "__version__",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AccessDeniedError": "paxosblock.errors",
        "AssertAbsent": "paxosblock.api.transaction",
        "AssertFile": "paxosblock.api.transaction",
        "AsyncClient": "paxosblock.client",
        "BlockCheck": "paxosblock.client.check",
        "BlockLocation": "paxosblock.client.reading.locations",
        "BlockReceipt": "paxosblock.client.writing.receipt",
        "Client": "paxosblock.client",
        "ClientConfig": "paxosblock.config",
        "Concat": "paxosblock.api.transaction",
        "ConfigError": "paxosblock.errors",
        "Consistency": "paxosblock.client.reading.length",
        "CorruptionError": "paxosblock.errors",
        "DeadlineError": "paxosblock.errors",
        "Delete": "paxosblock.api.transaction",
        "DirectoryNotEmptyError": "paxosblock.errors",
        "Durability": "paxosblock.protocol.types",
        "ExistsError": "paxosblock.errors",
        "FencedError": "paxosblock.errors",
        "FileStatus": "paxosblock.api.namenode",
        "FlushReceipt": "paxosblock.client",
        "InvalidRequestError": "paxosblock.errors",
        "IsDirectoryError": "paxosblock.errors",
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
        "SafeModeError": "paxosblock.errors",
        "StorageError": "paxosblock.errors",
        "TransactionOutcome": "paxosblock.api.transaction",
        "Truncate": "paxosblock.api.transaction",
        "TruncatedError": "paxosblock.errors",
        "UnavailableError": "paxosblock.errors",
        "__version__": "paxosblock.base.version",
    },
)
