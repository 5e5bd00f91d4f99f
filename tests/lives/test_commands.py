"""Every call of a node, and every command that changes something, is an action of the lives."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Final

from paxosblock.api.datanode import (
    ACCEPT,
    ACCEPT_ALL,
    FIND_CHUNK,
    FIND_REPLICA,
    LIST_REPLICAS,
    PROCESS,
)
from paxosblock.namenode.calls import CALLS
from tests.cli.test_usage import ALL_VERBS
from tests.lives.life import Kind, live

SLICE: Final = ((Kind.FILES, 3), (Kind.ONE_FILE, 2), (Kind.RIVALS, 2), (Kind.WHO_MAY, 1))
DATANODE_CALLS: Final = (ACCEPT, ACCEPT_ALL, FIND_CHUNK, FIND_REPLICA, LIST_REPLICAS, PROCESS)
NOT_CALLED: Final = {
    "issue_token": "of a user, and of no file: tests/services/test_tokens.py",
    "encrypt_directory": "of directories and keys: tests/namenode/test_zones.py",
    "encryption_zones": "shows directories, and changes nothing",
    "set_quota": "has lives of its own: tests/lives/clerks.py",
    "list_quotas": "shows directories, and changes nothing",
    "check_quotas": "as set_quota",
    "roll_master_key": "of keys, and of no file: tests/namenode/test_zones.py",
    "create_snapshot": "has lives of its own: tests/lives/keepsakes.py",
    "delete_snapshot": "as create_snapshot",
    "rename_snapshot": "as create_snapshot",
    "undelete": "has lives of its own: tests/lives/memories.py",
    "diff_snapshots": "compares snapshots: tests/namenode/test_snapshot_diff.py",
    "kept_room": "shows what a snapshot keeps: tests/namenode/snapshot_lives.py",
    "list_snapshots": "shows snapshots: tests/client/test_snapshots.py",
    "list_tokens": "shows tokens: tests/services/test_tokens.py",
    "revoke_token": "of a user, and of no file: tests/services/test_tokens.py",
    "delete_block": "of a block without a file: tests/services/test_blocks_without_files.py",
    "replica": "shows a replica to people, and changes nothing",
    "replicas": "shows replicas to people, and changes nothing",
    "list_keys": "shows names, and changes nothing: tests/namenode/test_key_order.py",
    "watch": "has lives of its own: tests/lives/onlookers.py",
    "settings": "for the status page, and changes nothing: tests/namenode/test_people.py",
    "unwhole_blocks": "for the status page, and changes nothing: tests/namenode/test_people.py",
    "work": "for the status page, and changes nothing: tests/namenode/test_people.py",
    "writers": "for the status page, and changes nothing: tests/namenode/test_people.py",
}
NOT_IN_EACH_SLICE: Final = {
    "rebuild_block": "only when a member fails while a writer is in the middle of a block",
    "report_bad_replica": "only when a reader finds the damage before the scrubber does",
    "process": "only when another process takes the place of one that lives",
    "chunk": "only when a file is cut in the middle of a chunk",
    "take_over": "only when a file is open when an operator asks for it",
}
"""Calls that a longer run makes: `make lives`."""
CHANGES: Final = {
    "admin balancer": "balance",
    "admin decommission": "set_admin_state",
    "admin fsck": "delete",
    "admin maintenance": "set_admin_state",
    "admin recommission": "set_admin_state",
    "admin recover-lease": "recover_lease",
    "admin safemode": "safe_mode",
    "fs append": "append",
    "fs appendToFile": "append",
    "fs chgrp": "set_owner",
    "fs chmod": "set_permission",
    "fs chown": "set_owner",
    "fs concat": "concat",
    "fs copyFromLocal": "create",
    "fs cp": "create",
    "fs expunge": "delete",
    "fs mkdir": "mkdirs",
    "fs moveFromLocal": "create",
    "fs mv": "rename",
    "fs put": "create",
    "fs recover-lease": "recover_lease",
    "fs rm": "delete",
    "fs rmdir": "delete",
    "fs setfacl": "change_acl",
    "fs setfattr": "set_attributes",
    "fs setrep": "set_replication",
    "fs sync": "create",
    "fs touch": "set_times",
    "fs touchz": "create",
    "fs truncate": "transact",
    "fsck": "delete",
}
"""Commands that change the files of a cluster, and the call by which each does."""
NO_LIFE: Final = {
    "admin encrypt": "changes no file that is there: tests/cli/test_encrypt.py",
    "admin quota": "has lives of its own: tests/lives/clerks.py",
    "admin grow": "one NameNode ends and several begin: tests/services/test_growing.py",
    "admin namenodes": "the list of NameNodes changes: tests/services/test_namenodes_change.py",
    "admin token": "changes no file: tests/services/test_tokens.py",
    "admin s3-key": "changes no file: tests/gateway/test_s3_keys.py",
    "admin restore": "asks no NameNode; lives do what it does: tests/lives/restoring.py",
    "fs createSnapshot": "has lives of its own: tests/lives/keepsakes.py",
    "fs deleteSnapshot": "as fs createSnapshot",
    "fs renameSnapshot": "as fs createSnapshot",
    "fs undelete": "has lives of its own: tests/lives/memories.py",
    "fs snapshot": "as fs createSnapshot",
    "spark compact": "writes and renames, as `fs put` and `fs mv`",
    "spark distcp": "writes and renames, as `fs put` and `fs mv`",
}
"""Commands that change something, and no action is about, with the reason."""


SHOWS: Final = frozenset(
    {
        "admin leaving",
        "admin report",
        "explain",
        "fs cat",
        "fs get",
        "fs getfacl",
        "fs getfattr",
        "fs head",
        "fs ls",
        "fs stat",
    }
    | {"fs copyToLocal", "fs count", "fs df", "fs du", "fs find", "fs getmerge", "fs tail"}
    | {
        "fs checksum",
        "fs help",
        "fs moveToLocal",
        "fs snapshotDiff",
        "fs test",
        "fs text",
        "fs usage",
        "fs watch",
        "help",
    }
    | {"spark fsck"}
)
"""Commands that show something, and change nothing."""
OF_A_MACHINE: Final = frozenset({"admin backup", "datanode", "demo", "gateway", "namenode"})
"""Commands that start processes, or write files of this machine; so do all of these groups."""
GROUPS_OF_A_MACHINE: Final = ("bench ", "cluster ", "setup ")


@cache
def called() -> Counter[str]:
    """Return how often each call is made in the lives of the slice."""
    calls: Counter[str] = Counter()
    for kind, seed in SLICE:
        outcome = live(seed, kind)
        assert (outcome.mistakes, outcome.unfinished) == ((), ()), "\n".join(outcome.trace)
        calls += outcome.calls
    return calls


def test_every_call_is_made_in_a_life_or_says_why_not() -> None:
    names = {call.method.name for call in CALLS} | {method.name for method in DATANODE_CALLS}
    assert names - {*called()} - {*NOT_IN_EACH_SLICE} == {*NOT_CALLED}


def test_no_reason_is_left_for_a_call_that_is_no_more() -> None:
    names = {call.method.name for call in CALLS} | {method.name for method in DATANODE_CALLS}
    assert {*NOT_CALLED, *NOT_IN_EACH_SLICE} <= names
    assert {*CHANGES.values()} <= names


def test_every_command_that_changes_something_is_an_action_or_says_why_not() -> None:
    verbs = {" ".join(words) for words in ALL_VERBS}
    machine = OF_A_MACHINE | {verb for verb in verbs if verb.startswith(GROUPS_OF_A_MACHINE)}
    assert verbs - SHOWS - machine == {*CHANGES, *NO_LIFE}
