"""`paxosblock admin decommission|maintenance|recommission|leaving`, and how `report` shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from paxosblock import Client, LocalCluster
from tests.cli.conftest import Paxosblock
from tests.waiting import wait_until

NAME = "datanode-1"


@pytest.fixture
def admin(
    cluster: LocalCluster, paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Paxosblock]:
    """Run `paxosblock admin` on the shared cluster, whose nodes are all in service afterwards."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    yield lambda *arguments: paxosblock("admin", *arguments)
    for node in cluster.datanodes:
        assert paxosblock("admin", "recommission", node.name).code == 0


def address(cluster: LocalCluster, name: str = NAME) -> str:
    return next(node.address for node in cluster.datanodes if node.name == name)


def make(client: Client, path: str, replication: int) -> None:
    with client.create(path) as out:
        out.write(b"abc")
    client.set_replication(path, replication)


def test_a_node_that_is_to_leave_is_shown_until_it_is_taken_back(
    admin: Paxosblock, cluster: LocalCluster
) -> None:
    where = f"{NAME} at {address(cluster)}"
    result = admin("decommission", NAME)
    told = f"{where} is to leave: no new block goes there\n"
    assert (result.code, result.out, result.err) == (0, told, "")
    assert re.match(rf"{where}: decommission", admin("leaving").out)
    report = admin("report")
    assert report.code == 0
    (line,) = (each for each in report.out.splitlines() if address(cluster) in each)
    assert re.search(r"live, .*, decommission(ed|ing)", line)
    result = admin("recommission", NAME)
    assert (result.code, result.out) == (0, f"{where} is in service\n")
    assert admin("leaving").out == "no DataNode is to leave\n"
    assert "decommission" not in admin("report").out


def test_a_node_is_named_by_its_address_too(admin: Paxosblock, cluster: LocalCluster) -> None:
    assert admin("decommission", address(cluster)).out.startswith(f"{NAME} at ")


def test_what_holds_a_node_up_is_listed(admin: Paxosblock, client: Client, folder: str) -> None:
    for entry in client.ls("/"):  # the first hundred are told, and other tests have left many
        if entry.path != folder:
            client.delete(entry.path, recursive=True)
    make(client, f"{folder}/big", 3)
    with client.create(f"{folder}/open") as out:
        out.write(b"abc")
        out.hflush()
        assert admin("decommission", NAME).code == 0
        wait_until(lambda: "open' block" in admin("leaving").out, what="the list of what holds it")
        lines = admin("leaving").out.splitlines()
        assert re.search(r"decommissioning, \d+ of \d+ blocks wait, \d+ being written", lines[0])
        shown = {line.split("'")[1]: line.split(": ")[1] for line in lines[1:] if "'" in line}
        assert shown[f"{folder}/big"] == "only 2 other DataNodes live for replication 3"
        assert shown[f"{folder}/open"] == "is being written"
        fact = json.loads(admin("leaving", "--json").out)
        assert fact["status"]["admin"] == "decommissioned"
        assert fact["waiting"] == len(fact["held_up"])


def test_decommission_waits_until_the_node_may_go(
    admin: Paxosblock, client: Client, cluster: LocalCluster
) -> None:
    for entry in client.walk("/"):
        if entry.replication > 2:
            client.set_replication(entry.path, 2)
    result = admin("decommission", "--wait", NAME)
    assert result.code == 0
    last = result.out.splitlines()[-1]
    assert re.fullmatch(
        rf"{NAME}: decommissioned, enough replicas of its \d+ blocks? are elsewhere", last
    )


def test_a_maintenance_tells_until_when(admin: Paxosblock, cluster: LocalCluster) -> None:
    result = admin("maintenance", "--for", "2h", NAME)
    assert result.code == 0
    assert re.fullmatch(
        rf"{NAME} at {address(cluster)} is in maintenance until \d{{4}}-\d\d-\d\d \d\d:\d\d: "
        "no new block goes there\n",
        result.out,
    )
    assert "in maintenance until " in admin("report").out


@pytest.mark.parametrize(
    "words", [("decommission",), ("recommission",), ("maintenance", "--for", "1h")]
)
def test_nobody_is_one_line_and_nothing_changes(
    admin: Paxosblock, cluster: LocalCluster, words: tuple[str, ...]
) -> None:
    result = admin(*words, "nobody")
    names = ", ".join(sorted(node.name for node in cluster.datanodes))
    told = f"{words[0]}: 'nobody': no such DataNode: {names}\n"
    assert (result.code, result.out, result.err) == (1, "", told)
    assert admin("leaving").out == "no DataNode is to leave\n"


def test_one_that_is_not_there_does_not_stop_the_others(admin: Paxosblock) -> None:
    result = admin("decommission", "nobody", NAME)
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert result.out.startswith(f"{NAME} at ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("maintenance", NAME), "maintenance: Missing option '--for'."),
        (("maintenance", "--for", "2", NAME), "Invalid value for '--for': duration '2' has no"),
        (("decommission",), "decommission: Missing argument 'NODE...'."),
    ],
)
def test_wrong_usage_is_one_line(admin: Paxosblock, words: tuple[str, ...], told: str) -> None:
    result = admin(*words)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert told in result.err


def test_a_maintenance_without_time_is_one_line(admin: Paxosblock) -> None:
    result = admin("maintenance", "--for", "0s", NAME)
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert "maintenance 0s: more than 0" in result.err
