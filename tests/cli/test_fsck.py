"""`paxosblock fsck`, also under `admin`."""

from __future__ import annotations

import json

import pytest

from paxosblock import Client, LocalCluster
from tests.cli.conftest import Paxosblock
from tests.files import write
from tests.waiting import wait_until


@pytest.fixture
def fsck(
    cluster: LocalCluster, paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> Paxosblock:
    """Run `paxosblock fsck` on the shared cluster."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    return lambda *arguments: paxosblock("fsck", *arguments)


def numbers(out: str) -> dict[str, str]:
    """The summary by name."""
    pairs = (line.split(":", 1) for line in out.splitlines() if line.startswith(" "))
    return {name.strip(): value.strip() for name, value in pairs}


def test_a_healthy_directory_is_summed_up(fsck: Paxosblock, client: Client, folder: str) -> None:
    client.mkdirs(f"{folder}/sub")
    write(client, f"{folder}/a", b"abc")
    write(client, f"{folder}/sub/b", b"abc")
    wait_until(lambda: "Under" not in fsck(folder).out.partition("Status")[0], what="all reports")
    result = fsck(folder)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "Status: HEALTHY"
    assert lines[-1] == f"The filesystem under path '{folder}' is HEALTHY"
    shown = numbers(result.out)
    assert shown["Total dirs"] == "2"
    assert shown["Total files"] == "2 (0 being written)"
    assert (shown["Total blocks"], shown["Total size"]) == ("2", "6 B")
    assert shown["Under-replicated blocks"] == "0 (0.0 %)"
    assert shown["Average block replication"] == "3.0"
    assert (shown["Number of data-nodes"], shown["Number of racks"]) == ("3", "1")


def test_blocks_and_files_that_are_not_as_they_should_be_are_listed(
    fsck: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/more", b"abc")
    wait_until(lambda: "Under" not in fsck(folder).out.partition("Status")[0], what="all reports")
    client.set_replication(f"{folder}/more", 4)
    with client.create(f"{folder}/open") as out:
        out.write(b"abc")
        result = fsck(folder)
    told = result.out.partition("Status: ")[0].splitlines()
    assert result.code == 0
    assert f"'{folder}/open': is being written" in told
    assert any(
        line.startswith(f"'{folder}/more': Under replicated block ")
        and line.endswith(": 3 of 4 replicas")
        for line in told
    )
    assert numbers(result.out)["Missing replicas"].startswith("1 ")


def test_fsck_tells_machines_each_finding_and_the_sum(
    fsck: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/more", b"abc")
    client.set_replication(f"{folder}/more", 4)
    wait_until(lambda: "3 of 4" in fsck(folder).out, what="all reports")
    finding, summary = map(json.loads, fsck(folder, "--json").out.splitlines())
    assert (finding["path"], finding["condition"]) == (f"{folder}/more", "under_replicated")
    assert (finding["counted"], finding["wanted"]) == (3, 4)
    assert (summary["status"], summary["files"]) == ("HEALTHY", 1)
    assert summary["found"] == {"under_replicated": 1}


def test_it_is_a_verb_of_admin_too_and_takes_one_file(
    fs: Paxosblock, paxosblock: Paxosblock, fsck: Paxosblock, client: Client, folder: str
) -> None:
    write(client, f"{folder}/a", b"abc")
    result = paxosblock("admin", "fsck", f"{folder}/a")
    assert result.code == 0
    assert numbers(result.out)["Total dirs"] == "0"


def test_a_path_that_is_not_there_is_one_line(fsck: Paxosblock) -> None:
    result = fsck("/none")
    told = "fsck: '/none': no such file or directory\n"
    assert (result.code, result.out, result.err) == (1, "", told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--yes",), "fsck: --yes goes with --delete-corrupt."),
        (("--delete-corrupt",), "fsck: --delete-corrupt asks for a yes: where nobody can be, add"),
    ],
)
def test_deleting_wants_somebody_who_agrees(
    fsck: Paxosblock, words: tuple[str, ...], told: str
) -> None:
    result = fsck("/", *words)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert result.err.startswith(told)


def test_a_healthy_file_is_not_deleted(fsck: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fsck(folder, "--delete-corrupt", "--yes")
    assert (result.code, "Deleted" in result.out) == (0, False)
    assert client.exists(f"{folder}/a")
