"""The answers of WebHDFS, as JSON with Hadoop's names."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.quota import NO_QUOTA, QuotaUsage
from paxosblock.api.subtree import ContentSummary
from paxosblock.base.rack import DEFAULT_RACK
from paxosblock.client.reading.locations import BlockLocation
from paxosblock.gateway.exchange import Answer

CRC32C: Final = 2
"""The number of the kind of checksum in Hadoop's `DataChecksum`."""
BYTES_TYPE: Final = "application/octet-stream"
HOT: Final = 7
"""The number of HDFS's usual storage policy."""


class FileStatusJson(msgspec.Struct, rename="camel", omit_defaults=True):
    """A file or directory. Times are milliseconds since the epoch."""

    path_suffix: str
    type: str
    length: int
    owner: str
    group: str
    permission: str
    access_time: int
    modification_time: int
    block_size: int
    replication: int
    file_id: int
    storage_policy: int
    acl_bit: bool = False
    enc_bit: bool = False
    """True: it is in an encryption zone."""


class SpaceJson(msgspec.Struct, rename="camel"):
    """The count of a tree."""

    directory_count: int
    file_count: int
    length: int
    space_consumed: int
    quota: int = NO_QUOTA
    space_quota: int = NO_QUOTA
    ec_policy: str = ""


class UsageJson(msgspec.Struct, rename="camel"):
    """The count of a tree, as quotas count it."""

    file_and_directory_count: int
    space_consumed: int
    quota: int = NO_QUOTA
    space_quota: int = NO_QUOTA


class DifferenceJson(msgspec.Struct, rename="camel", omit_defaults=True):
    """A difference between two states of a directory."""

    source_path: str
    type: str
    target_path: str = ""


class SnapshotDiffReportJson(msgspec.Struct, rename="camel"):
    """The differences of a directory between two snapshots; "" is what is there now."""

    diff_list: list[DifferenceJson]
    from_snapshot: str
    snapshot_root: str
    to_snapshot: str


class BlockLocationJson(msgspec.Struct, rename="camel"):
    """A block of a file, and where its replicas are."""

    offset: int
    length: int
    hosts: list[str]
    names: list[str]
    topology_paths: list[str]
    storage_types: list[str]
    cached_hosts: list[str] = msgspec.field(default_factory=list)
    corrupt: bool = False


class AttributeJson(msgspec.Struct):
    """An attribute, and its value in a form that a text may have."""

    name: str
    value: str


class AclStatusJson(msgspec.Struct, rename="camel"):
    """An access control list."""

    entries: list[str]
    group: str
    owner: str
    permission: str
    sticky_bit: bool


class RoomJson(msgspec.Struct):
    """The room of the cluster, in bytes."""

    capacity: int
    used: int
    remaining: int


class FileChecksumJson(msgspec.Struct):
    """A checksum as HDFS has it."""

    algorithm: str
    bytes: str
    length: int


class ServerDefaultsJson(msgspec.Struct, rename="camel"):
    """The settings that Hadoop's client asks for."""

    block_size: int
    replication: int
    bytes_per_checksum: int = 512
    write_packet_size: int = 65536
    file_buffer_size: int = 4096
    encrypt_data_transfer: bool = False
    trash_interval: int = 0
    checksum_type: int = CRC32C
    key_provider_uri: str = ""
    default_storage_policy_id: int = HOT


_ENCODER: Final = msgspec.json.Encoder()


def answered(value: Any) -> Answer:
    """Return the answer that has `value` as its JSON."""
    return Answer(200, _ENCODER.encode(value))


def done() -> Answer:
    """Return the empty answer of what only has to succeed. HDFS gives it the type of bytes."""
    return Answer(200, b"", {"Content-Type": BYTES_TYPE})


def truth(value: bool) -> Answer:
    """Return the answer that is true or false."""
    return answered({"boolean": value})


def file_status(status: FileStatus, name: str = "") -> FileStatusJson:
    """Return a status; `name` is that of an entry in a list."""
    is_file = status.kind is Kind.FILE
    return FileStatusJson(
        path_suffix=name,
        type="FILE" if is_file else "DIRECTORY",
        length=status.size if is_file else 0,
        owner=status.owner,
        group=status.group,
        permission=f"{status.permission:o}",
        access_time=0,
        modification_time=round(status.modified_s * 1000),
        block_size=status.block_size if is_file else 0,
        replication=status.replication if is_file else 0,
        file_id=status.file_id,
        storage_policy=0,
        acl_bit=status.has_acl,
        enc_bit=status.encrypted,
    )


def content_summary(summary: ContentSummary, quota: QuotaUsage) -> SpaceJson:
    """Return the count of a tree, and its limits."""
    counts = summary.directories, summary.files, summary.size, summary.space
    coding = "" if summary.directories else "Replicated"
    return SpaceJson(*counts, quota.names_max, quota.space_max, coding)


def quota_usage(summary: ContentSummary, quota: QuotaUsage) -> UsageJson:
    """Return the count of a tree, as quotas count it, and its limits."""
    if quota.limited:
        return UsageJson(quota.names, quota.space, quota.names_max, quota.space_max)
    return UsageJson(summary.directories + summary.files, summary.space)


def block_location(place: BlockLocation) -> BlockLocationJson:
    """Return a block."""
    names = list(place.hosts)
    return BlockLocationJson(
        offset=place.offset,
        length=place.size,
        hosts=[name.rpartition(":")[0].strip("[]") for name in names],
        names=names,
        topology_paths=[f"{DEFAULT_RACK}/{name}" for name in names],
        storage_types=["DISK"] * len(names),
    )
