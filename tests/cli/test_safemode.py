"""`paxosblock admin safemode`, and what the other commands say meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.status import SafeModeStatus
from paxosblock.cli.safemode import describe_safe_mode
from tests.cli.conftest import Paxosblock, Result

OFF = Result(0, "Safe mode is OFF\n", "")
BY_HAND = "Safe mode is ON: entered by hand, until `paxosblock admin safemode leave`\n"


@pytest.fixture
def admin(cluster: LocalCluster, paxosblock: Paxosblock) -> Iterator[Paxosblock]:
    """`admin("safemode", "get")`; whatever happens, safe mode is left at the end."""

    where = ("--namenodes", cluster.namenode.address)
    yield lambda *arguments: paxosblock("admin", *arguments, *where)
    assert paxosblock("admin", "safemode", "leave", *where) == OFF


def test_get_enter_and_leave_say_how_it_is(admin: Paxosblock) -> None:
    assert admin("safemode", "get") == OFF
    assert admin("safemode", "enter") == Result(0, BY_HAND, "")
    assert admin("safemode", "get") == Result(0, BY_HAND, "")
    assert BY_HAND in admin("report").out
    assert admin("-safemode", "leave") == OFF
    assert "Safe mode" not in admin("report").out


def test_json_tells_all_of_it(admin: Paxosblock) -> None:
    admin("safemode", "enter")
    fact = json.loads(admin("safemode", "get", "--json").out)
    assert (fact["on"], fact["by_hand"]) == (True, True)
    assert {"reported", "blocks", "threshold", "left_s"} <= fact.keys()


def test_a_change_of_names_is_one_line_when_its_time_is_over_and_files_are_read(
    admin: Paxosblock, fs: Paxosblock, client: Client, folder: str
) -> None:
    with client.create(f"{folder}/a") as out:
        out.write(b"12345")
    admin("safemode", "enter")
    refused = fs("mkdir", "--timeout", "300ms", f"{folder}/new")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"mkdir: '{folder}/new': the cluster is in safe mode, which an operator entered: names are "
        "not changed until `paxosblock admin safemode leave`\n"
    )
    failed = json.loads(fs("rm", "--json", "--timeout", "300ms", f"{folder}/a").err)
    assert (failed["error"], failed["outcome"], failed["retriable"]) == (
        "SafeModeError",
        "never",
        True,
    )
    assert fs("cat", f"{folder}/a").out == "12345"


def test_a_client_with_patience_goes_on_when_it_is_left(
    admin: Paxosblock, client: Client, folder: str
) -> None:
    admin("safemode", "enter")
    making = threading.Thread(target=client.mkdirs, args=(f"{folder}/later",))
    making.start()
    making.join(0.5)
    assert making.is_alive()
    assert not client.exists(f"{folder}/later")
    admin("safemode", "leave")
    making.join(20.0)
    assert client.exists(f"{folder}/later")


def test_wait_returns_when_it_is_off(admin: Paxosblock) -> None:
    assert admin("safemode", "wait") == OFF
    admin("safemode", "enter")
    over = admin("safemode", "wait", "--timeout", "700ms")
    assert (over.code, over.out) == (1, "")
    first, last = over.err.splitlines()
    assert first == f"safemode: waiting: {BY_HAND.strip()}"
    assert last == f"safemode: after 700ms: {BY_HAND.strip()}"


def test_where_nobody_listens_it_is_one_line(paxosblock: Paxosblock) -> None:
    result = paxosblock("admin", "safemode", "get", "--namenodes", "127.0.0.1:1", "--timeout", "1s")
    told = "safemode: cannot connect to 127.0.0.1:1: connection refused\n"
    assert result == Result(1, "", told)


@pytest.mark.parametrize("action", ["", "on"])
def test_another_word_is_wrong_usage(action: str, paxosblock: Paxosblock) -> None:
    arguments = ["admin", "safemode", *([action] if action else [])]
    result = paxosblock(*arguments)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "get" in result.err
    assert "wait" in result.err


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            SafeModeStatus(True, False, 9, 10, 0.999, None),
            "Safe mode is ON: DataNodes have reported 9 of 10 blocks, 99.9 % are needed; without "
            "the rest: `paxosblock admin safemode leave`",
        ),
        (
            SafeModeStatus(True, False, 1, 1, 0.999, 12.4),
            "Safe mode is ON: DataNodes have reported 1 of 1 block, it ends in 12 s",
        ),
    ],
)
def test_it_says_what_it_waits_for(status: SafeModeStatus, words: str) -> None:
    assert describe_safe_mode(status) == words
