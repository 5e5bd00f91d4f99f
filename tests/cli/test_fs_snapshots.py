"""`paxosblock fs snapshot`."""

from __future__ import annotations

import json

from paxosblock import Client
from tests.cli.conftest import Paxosblock, Result
from tests.files import read
from tests.waiting import wait_until


def test_a_snapshot_is_taken_shown_read_renamed_and_deleted(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    with client.create(f"{folder}/f") as out:
        out.write(b"before")
    assert fs("snapshot", "create", folder, "s").out == f"Created snapshot {folder}/.snapshot/s\n"
    client.delete(f"{folder}/f")
    assert fs("cat", f"{folder}/.snapshot/s/f").out == "before"
    wait_until(lambda: client.kept_room(folder, "s"))
    assert fs("du", "-s", f"{folder}/.snapshot/s").out == f"6  18  {folder}/.snapshot/s\n"
    renamed = f"Renamed snapshot s to t under {folder}\n"
    assert fs("snapshot", "rename", folder, "s", "t") == Result(0, renamed, "")
    shown = fs("snapshot", "list", folder).out
    assert shown.endswith(f" {folder}/.snapshot/t\n")
    (line,) = fs("--json", "snapshot", "list", folder).out.splitlines()
    assert (json.loads(line)["name"], len(shown.split())) == ("t", 4)
    refused = fs("rm", "-r", "-skipTrash", folder)
    assert (refused.code, "snapshot" in refused.err) == (1, True)
    deleted = f"Deleted snapshot t under {folder}\n"
    assert fs("snapshot", "delete", folder, "t") == Result(0, deleted, "")
    assert fs("snapshot", "list", folder).out == ""


def test_the_names_of_hdfs_are_taken_with_a_dash(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    client.mkdirs(folder)
    with client.create(f"{folder}/f") as out:
        out.write(b"before")
    named = fs("-createSnapshot", folder).out.rpartition("/")[2].strip()
    assert read(client, f"{folder}/.snapshot/{named}/f") == b"before"
    client.rename(f"{folder}/f", f"{folder}/g")
    client.mkdirs(f"{folder}/h")
    where = f"under directory {folder}:\n"
    told = "M\t.\n+\t./h\nR\t./f -> ./g\n\n"
    compared = fs("-snapshotDiff", folder, f".snapshot/{named}", ".")
    heading = f"Difference between snapshot {named} and current directory {where}"
    assert compared == Result(0, heading + told, "")
    assert fs("snapshotDiff", folder, ".", ".").out.endswith(f"{where}\n")
    refused = fs("snapshotDiff", folder, "none")
    assert (refused.code, refused.out) == (1, "")
    assert f"Cannot find the snapshot of directory {folder} with name none" in refused.err
    assert fs("-renameSnapshot", folder, named, "second").code == 0
    twice = fs("-createSnapshot", folder, "second")
    assert (twice.code, "already" in twice.err) == (1, True)
    assert fs("-deleteSnapshot", folder, "second").code == 0
