"""Every case runs at its smallest size, its records are complete, and the report names them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import catalog, host, reporting, suite
from benchmarks.cases import replicas
from benchmarks.record import Record, encode, read_records
from paxosblock.base.version import __version__
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.host import loop
from paxosblock.host.disk import OsDisk
from paxosblock.host.process import boot_id
from tests.format.loading import load_all
from tests.waiting import wait_until

catalog.load()

NEEDS_MORE = {
    "install",
    "s3-list-all",
    "spark-doors",
    *(name for name in suite.CASES if "beside" in name),
}
"""Cases that fetch what a test must not."""
SLOW = {"healing", "healing-growth", "spark"}
"""Those that take a minute however small they are, and on a busy machine many."""
NAMES = [
    pytest.param(name, marks=(pytest.mark.slow, pytest.mark.timeout(900))) if name in SLOW else name
    for name in suite.CASES
    if name not in NEEDS_MORE
]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[suite.Clusters]:
    """One place for all cases, and one cluster for all that can share it."""
    clusters = suite.Clusters(tmp_path_factory.mktemp("bench"))
    yield clusters
    clusters.drop()


@pytest.mark.parametrize("name", NAMES)
def test_a_case_runs_and_its_records_are_complete(name: str, clusters: suite.Clusters) -> None:
    records: list[Record] = []
    machine = host.describe(clusters.folder)
    options = suite.Options(small=True, folder=clusters.folder)
    bench = suite.Bench(name, options, machine, clusters, records.append)
    loop.run(suite.CASES[name].run(bench))

    assert records
    assert all(record.value >= 0 and record.unit for record in records)
    assert {(record.case, record.round) for record in records} == {(name, 1)}
    text = reporting.report(records, {})
    assert f"## {name}\n" in text
    assert all(record.what in text for record in records)


def test_a_record_tells_the_machine_and_the_versions(tmp_path: Path) -> None:
    told = host.describe(tmp_path)
    assert all((told.machine, told.cores, told.kernel, told.mount_options, told.file_system))
    assert {"paxosblock", "python", "uvloop"} <= set(told.versions)


def test_a_checkout_without_git_is_measured_and_says_that_its_revision_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(host, "REPOSITORY", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.describe(tmp_path).versions["paxosblock"] == __version__
    assert capsys.readouterr().err == (
        "  git is not installed: the records lack the revision of this checkout\n"
    )


def test_memory_that_is_touched_is_taken_and_given_back() -> None:
    text = (
        "from benchmarks.host import *; from paxosblock.base.units import MIB;"
        "before = most_resident_bytes(); touch_memory(64 * MIB);"
        "print((most_resident_bytes() - before) // MIB, (resident_bytes() - before) // MIB)"
    )
    done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, check=True)
    taken, left = map(int, done.stdout.split())
    assert taken >= 60
    assert left <= 4


def test_the_processor_time_below_a_process_has_that_of_children_that_ended() -> None:
    burns = "import time; end = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    starts = (
        "import subprocess, sys, time; command = [sys.executable, '-c', sys.argv[1]];"
        "subprocess.run(command); print(flush=True); subprocess.Popen(command); sys.stdin.read()"
    )
    command = [sys.executable, "-c", starts, burns]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # the first child has ended
        assert host.processor_below_s(parent.pid) >= 0.35
        wait_until(lambda: host.processor_below_s(parent.pid) >= 0.75)
        assert host.processor_below_s(os.getpid()) >= 0.75


@pytest.mark.parametrize("more", replicas.KINDS.values())
def test_a_volume_that_is_filled_in_steps_has_sound_replicas(
    more: Callable[[Path, int, int], None], tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    more(volume, 0, 3)
    more(volume, 3, 5)
    store = FileStore(OsDisk(), volume, boot_id())
    loaded = load_all(store)
    assert sorted(each.block - replicas.FIRST for each in loaded) == [0, 1, 2, 3, 4]
    for each in loaded:
        assert each.files is not None
        assert each.replica is not None
        file = store.open(each.files)
        store.read_stored(file, each.block, each.replica.log, range(1))  # raises what is damaged
        file.retire()
    store.close()


def made(**changes: object) -> Record:
    """A record as a run could have measured it."""
    machine = host.describe(Path("."))
    fields = {"case": "write", "what": "write", "value": 200.0, "unit": "MiB/s", "round": 1}
    return Record(**{**fields, "host": machine, **changes})  # type: ignore[arg-type]  # by name


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    record = made(limit=400.0, ratio=0.5, processor_s={"client": 1.5}, per="GiB", replicas=3)
    (tmp_path / "one.jsonl").write_bytes(encode(record) + b"\n")
    assert read_records([tmp_path / "one.jsonl"]) == [record]


def test_the_report_shows_median_range_limit_and_peers() -> None:
    rounds = [
        made(round=number, value=value, limit=400.0, ratio=value / 400, replicas=3)
        for number, value in enumerate((100.0, 300.0, 200.0), start=1)
    ]
    text = reporting.report([*rounds, made(value=100.0, side="hdfs", replicas=3)], {})
    ours = next(line for line in text.splitlines() if "paxosblock |" in line)
    cells = [cell.strip() for cell in ours.split("|")[1:-1]]
    assert cells == ["write", "paxosblock", "200 MiB/s", "100 - 300", "3", "400",
                     "0.5 (0.25 - 0.75)", ""]  # fmt: skip
    assert "3 replicas." in text
    peer = next(line for line in text.splitlines() if "| hdfs" in line)
    assert [cell.strip() for cell in peer.split("|")[1:-1]][-1] == "0.5"


def test_a_growth_curve_is_drawn_with_a_dot_for_each_round() -> None:
    points = [
        made(what="memory & more", at=float(at), at_unit="files", value=at / 10, round=number)
        for at in (100_000, 10_000_000)
        for number in (1, 2)
    ]
    (name, drawn), *more = reporting.pictures([*points, made()]).items()
    assert (name, more) == ("write", [])
    assert drawn.count("<circle") == 4
    assert "memory &amp; more, MiB/s" in drawn
    assert ">100k<" in drawn
    assert ">10M<" in drawn


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """Say how many bytes the kernel has to write, as /proc/meminfo does."""

    def dirty(waiting: int) -> None:
        monkeypatch.setattr(host, "_memory", lambda: {"Dirty": waiting, "Writeback": 0})

    monkeypatch.setattr(host, "_disks", lambda: [[0] * 17])
    monkeypatch.setattr(os, "sync", lambda: None)
    return dirty


def test_a_side_waits_until_nothing_is_to_be_written(disk: Callable[[int], None]) -> None:
    async def run() -> bool:
        disk(host.QUIET_BYTES + 1)
        waiting = asyncio.create_task(host.quiet(within_s=60))
        done, _ = await asyncio.wait([waiting], timeout=5 * host.LOOK_EVERY_S)
        assert not done, "a disk with work is not quiet"
        disk(0)
        return await waiting

    assert loop.run(run())


def test_a_disk_that_stays_busy_is_not_waited_for_for_ever(disk: Callable[[int], None]) -> None:
    disk(host.QUIET_BYTES + 1)
    assert not loop.run(host.quiet(within_s=0.0))


def test_a_case_that_lacks_something_is_skipped_and_one_that_fails_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def lacks(_: suite.Bench) -> None:
        raise suite.SkipError("no java here")

    async def fails(_: suite.Bench) -> None:
        raise TimeoutError

    async def works(bench: suite.Bench) -> None:
        bench.emit("one", 1, "s")

    cases = [
        suite.Case(run.__name__, "?", run, usual=True, room_bytes=0)
        for run in (lacks, fails, works)
    ]
    records: list[Record] = []
    options = suite.Options(folder=tmp_path)
    assert loop.run(suite.run_cases(cases, options, records.append)) == ["fails"]
    assert [record.case for record in records] == ["works"]
    told = capfd.readouterr().err
    assert "lacks: skipped: no java here\n" in told
    assert "fails: stopped: TimeoutError\n" in told
