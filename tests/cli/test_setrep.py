"""`paxosblock fs setrep`."""

from __future__ import annotations

import json

from paxosblock import Client
from tests.cli.conftest import Paxosblock
from tests.files import write


def test_setrep_changes_a_file_and_says_so_as_hdfs_does(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("setrep", "2", f"{folder}/a")
    assert (result.code, result.out, result.err) == (0, f"Replication 2 set: {folder}/a\n", "")
    assert client.stat(f"{folder}/a").replication == 2


def test_setrep_of_a_directory_changes_all_files_below(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    client.mkdirs(f"{folder}/sub/empty")
    write(client, f"{folder}/a", b"abc")
    write(client, f"{folder}/sub/b", b"abc")
    told = fs("setrep", "-R", "2", folder).out.splitlines()
    assert told == [f"Replication 2 set: {folder}/{name}" for name in ("a", "sub/b")]
    assert client.stat(f"{folder}/sub/b").replication == 2


def test_setrep_waits_for_what_holds_already(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("setrep", "-w", "3", f"{folder}/a")
    assert result.code == 0
    first, second = result.out.splitlines()
    assert first == f"Replication 3 set: {folder}/a"
    assert second.startswith(f"Waiting for {folder}/a ...")
    assert second.endswith(" done")


def test_setrep_does_not_wait_for_more_datanodes_than_live(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("setrep", "-w", "9", f"{folder}/a")
    line = "setrep: '9': only 3 DataNodes live: -w would wait for ever\n"
    assert (result.code, result.out, result.err) == (1, "", line)
    assert client.stat(f"{folder}/a").replication == 3


def test_setrep_waits_no_longer_than_the_timeout_without_progress(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    """A block that is told to have fewer replicas than members has them a moment later at best."""
    write(client, f"{folder}/a", b"abc")
    result = fs("setrep", "-w", "1", f"{folder}/a", "--timeout", "0s")
    why = "blocks without exactly 1 live replicas: 1; the cluster goes on with them"
    assert (result.code, result.err) == (1, f"setrep: '{folder}/a': {why}\n")
    assert client.stat(f"{folder}/a").replication == 1


def test_setrep_tells_machines_what_it_did(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    changed, waited = map(json.loads, fs("setrep", "-w", "3", f"{folder}/a", "--json").out.split())
    assert (changed["path"], changed["replication"]) == (f"{folder}/a", 3)
    assert waited == {"path": f"{folder}/a", "replication": 3, "done": True}


def test_setrep_of_no_replica_is_wrong_usage(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("setrep", "0", f"{folder}/a")
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert result.err.startswith("setrep: Invalid value for 'N': 0 is not in the range x>=1.")
    assert client.stat(f"{folder}/a").replication == 3


def test_setrep_above_the_bound_is_one_line(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("setrep", "33", f"{folder}/a")
    line = f"setrep: '{folder}/a': replication 33: 1 to 32 replicas\n"
    assert (result.code, result.out, result.err) == (1, "", line)
    assert client.stat(f"{folder}/a").replication == 3


def test_setrep_goes_on_behind_a_path_that_is_not_there(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("setrep", "2", f"{folder}/none", f"{folder}/a")
    assert result.code == 1
    assert result.out == f"Replication 2 set: {folder}/a\n"
    assert result.err == f"setrep: '{folder}/none': no such file or directory\n"
