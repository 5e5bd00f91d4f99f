"""`paxosblock demo` on a small file: real kills, every byte compared."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from examples.demo.source import build, digest_of_start, measure
from examples.demo.story import Check, Report
from paxosblock.base.units import MIB
from tests.cli.conftest import Paxosblock


def test_the_demo_kills_recovers_and_verifies(paxosblock: Paxosblock) -> None:
    result = paxosblock("demo", "--size", "24MiB")
    assert (result.code, result.err) == (0, "")
    for step in (
        "a second process follows it: it has ",
        "gets SIGKILL in mid-write",
        "detected by the client, recovery started",
        "sealed with length ",
        "the next chunks are acknowledged",
        "is started again",
        "which leads, gets SIGKILL in mid-write",
        "no NameNode needed",
        "leads and has made a directory",
        "is back as a follower",
        "the writer of /demo/second gets SIGKILL",
        "/demo/second taken over and closed",
        "gets SIGKILL, and is not started again",
        "has 3 live members again, a new one at datanode-",
        "votes of block",
        "last vote",
    ):
        assert step in result.out
    assert result.out.count("\nok ") == 8
    assert result.out.splitlines()[-1].startswith("every byte was verified, in ")


@pytest.mark.slow
def test_the_demo_with_json_is_one_object_per_line(paxosblock: Paxosblock, tmp_path: Path) -> None:
    source = tmp_path / "source"
    build(source, 16 * MIB, lambda _: None)
    result = paxosblock("demo", "--json", "--file", source, "--path", tmp_path / "cluster")
    facts = [json.loads(line) for line in result.out.splitlines()]
    assert facts[-1]["verified"] is True
    assert all(fact["holds"] for fact in facts if "claim" in fact)
    assert (tmp_path / "cluster" / "logs" / "namenode-0.log").exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nope", "demo: 'nope': no such file or directory\n"),
        (".", "demo: '.': is a directory\n"),
        ("short", "demo: 'short': too short: the demo needs 16MiB\n"),
    ],
)
def test_a_file_that_the_demo_cannot_use_is_one_line(
    paxosblock: Paxosblock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_bytes(b"short")
    result = paxosblock("demo", "--file", name)
    assert (result.code, result.err) == (1, line)


def test_one_claim_that_does_not_hold_is_enough_to_fail() -> None:
    report = Report(on_event=lambda _: None)
    assert not report.verified  # nothing was checked
    report.check("the first", True)
    assert report.verified
    report.check("the second", False)
    assert not report.verified
    assert report.checks == [Check("the first", True), Check("the second", False)]


def test_the_input_is_made_of_real_files_and_the_same_every_time(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    build(first, 2 * MIB, lambda _: None)
    build(second, 3 * MIB, lambda _: None)
    source = measure(first)
    assert source.size_bytes == 2 * MIB
    assert source.digest == hashlib.sha256(first.read_bytes()).hexdigest()
    assert source.digest == digest_of_start(second, 2 * MIB)
    assert (
        Path(hashlib.__file__).parent.joinpath("__future__.py").read_bytes() in first.read_bytes()
    )
