"""Tests of others that pass at HDFS and not at a gateway, on purpose: docs/webhdfs.md has them."""

from __future__ import annotations

from typing import Final

from tests.outside.comparison import Difference

HADOOP: Final[tuple[Difference, ...]] = (
    Difference(
        "the address for the bytes of CREATE is the gateway's own: there is no NameNode's in it,"
        " without which HDFS refuses them",
        ("FileSystemContract.testResponseCode",),
    ),
)
BY_TIME: Final = frozenset(
    {
        "Append.testRenameFileBeingAppended",
        "Create.testCreatedFileIsImmediatelyVisible",
        "Create.testCreatedFileIsVisibleOnFlush",
        "Create.testSyncable",
    }
)
"""Tests that pass or fail at either server: Hadoop's client has begun a CREATE or APPEND for its
program when the request is on its way, and the program looks at once."""

HDFSCLI: Final[tuple[Difference, ...]] = (
    Difference(
        "times of access are not kept: SETTIMES with such a time alone is refused",
        ("TestSetTimes.test_file", "TestSetTimes.test_folder"),
    ),
    Difference(
        "snapshots may be taken of each directory, by its owner: ALLOWSNAPSHOT changes nothing, and"
        " DISALLOWSNAPSHOT is refused",
        (
            "TestSnapshot.test_create_snapshot_noallow",
            "TestSnapshot.test_disallow_no_allow",
            "TestSnapshot.test_disallow_snapshot",
        ),
    ),
)
