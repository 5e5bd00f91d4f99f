"""`paxosblock bench`: what it shows, and one line for a mistake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks import host, suite
from benchmarks.record import Record, encode
from tests.cli.conftest import Paxosblock


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A file of two records, one of them of a growth curve."""
    fields = {"case": "files", "unit": "MiB", "round": 1, "host": host.describe(tmp_path)}
    written = [
        Record(**fields, what="memory", value=12.5),  # type: ignore[arg-type]  # by name
        Record(**fields, what="grown", value=1, at=1e5, at_unit="files"),  # type: ignore[arg-type]  # by name
    ]
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"".join(map(encode, written)))
    return path


def test_the_cases_are_listed_with_their_questions(paxosblock: Paxosblock) -> None:
    result = paxosblock("bench", "--list")
    assert (result.code, result.err) == (0, "")
    assert "write  " in result.out
    assert "How fast are files written" in result.out
    facts = [json.loads(line) for line in paxosblock("bench", "--list", "--json").out.splitlines()]
    assert {"case", "question", "usual"} == set(facts[0])
    assert len(facts) == len(result.out.splitlines())


def test_a_case_is_run_and_its_records_are_kept(paxosblock: Paxosblock, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    words = ("imports", "--small", "--folder", tmp_path, "--output", kept)
    result = paxosblock("bench", *words)
    assert result.code == 0, result.err
    assert "imports: 6 figures" in result.err
    assert "| import paxosblock" in result.out
    machines = paxosblock("bench", *words, "--json")
    lines = machines.out.splitlines()
    assert [json.loads(line)["case"] for line in lines] == ["imports"] * 6
    assert len(kept.read_text().splitlines()) == 12, "the records of both runs"


def test_a_report_goes_to_standard_output_or_with_pictures_to_a_folder(
    paxosblock: Paxosblock, records: Path, tmp_path: Path
) -> None:
    shown = paxosblock("bench", "report", records)
    assert shown.code == 0, shown.err
    assert "## files" in shown.out
    assert "12.5 MiB" in shown.out
    folder = tmp_path / "made" / "here"
    assert paxosblock("bench", "report", records, "--folder", folder).out == ""
    assert sorted(os.listdir(folder)) == ["README.md", "files.svg"]
    assert "![files](files.svg)" in (folder / "README.md").read_text()


def test_an_unknown_case_is_one_line(paxosblock: Paxosblock) -> None:
    result = paxosblock("bench", "wirte")
    assert (result.code, result.out) == (1, "")
    assert result.err == "run: 'wirte': no such case; did you mean 'write'?\n"


@pytest.mark.parametrize("line", ["no json", '{"case": "write"}', "[]", ""])
def test_a_file_that_holds_no_record_is_one_line(
    paxosblock: Paxosblock, tmp_path: Path, records: Path, line: str
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(line and f"{records.read_text()}{line}\n")
    result = paxosblock("bench", "report", records, other)
    assert (result.code, result.out) == (1, "")
    where = "line 3 is no record of a benchmark" if line else "holds no record"
    assert result.err.startswith(f"report: '{other}': {where}")
    assert result.err.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line(paxosblock: Paxosblock, tmp_path: Path) -> None:
    result = paxosblock("bench", "report", tmp_path / "none")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "none" in result.err


def test_no_room_is_one_line_before_anything_is_measured(
    paxosblock: Paxosblock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "SMALL_ROOM_BYTES", 1 << 60)
    result = paxosblock("bench", "imports", "--small", "--folder", tmp_path)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"run: '{tmp_path}': imports needs 1048576TiB, and ")
    assert result.err.endswith("GiB are free there; name another folder with --folder\n")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_none_is_one_line(paxosblock: Paxosblock, tmp_path: Path) -> None:
    result = paxosblock("bench", "imports", "--folder", tmp_path / "none")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert str(tmp_path / "none") in result.err
