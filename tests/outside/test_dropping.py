"""Files that no program closes: they are published, or one line tells that they are lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import polars as pl
import pytest

from paxosblock.base.paths import STAGING
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.errors import InvalidRequestError
from paxosblock.local.cluster import LocalCluster
from tests.children import killed_at_the_end, without_slow_steps
from tests.outside.staging import staged
from tests.waiting import wait_until

LOST = "was not published, what was written is lost"


class Oops(Exception):
    """An error that the tests raise while a file is open."""


def end(script: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; `fs`, `path` and the imports are there."""
    head = """
import fsspec, io, os, sys, threading, zipfile
fs, path = fsspec.url_to_fs(sys.argv[1])
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", head + script, url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    done.stderr = without_slow_steps(done.stderr)
    return done


@contextmanager
def begun(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program beside the test; killed if that ends first.

    When all others have done what they do at its end it tells what still runs on fsspec's loop.
    """
    head = """
import atexit, sys
@atexit.register
def tell():
    for task in asyncio.all_tasks(fsspec.asyn.loop[0]):
        print(task, file=sys.stderr)
import asyncio, fsspec.asyn
fs, path = fsspec.url_to_fs(sys.argv[1])
"""
    program = subprocess.Popen(
        [sys.executable, "-c", head + script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_at_the_end(program):
        yield program


def warnings_of(logged: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in logged.records if each.levelno >= logging.WARNING]


# -- dropped while the program runs ---------------------------------------------------------------


def test_what_numpy_saved_is_there_at_once(fs: PaxosBlockFileSystem, home: str) -> None:
    numbers = np.arange(1_000_000)
    np.save(fs.open(f"{home}/a.npy", "wb"), numbers)
    assert (np.load(fs.open(f"{home}/a.npy")) == numbers).all()


def test_what_polars_wrote_is_there_at_once(fs: PaxosBlockFileSystem, home: str) -> None:
    frame = pl.DataFrame({"number": range(1000), "word": ["one"] * 1000})
    frame.write_parquet(fs.open(f"{home}/a.parquet", "wb"))
    assert pl.read_parquet(fs.open(f"{home}/a.parquet")).equals(frame)


@pytest.mark.parametrize(
    ("mode", "compression"), [("wb", None), ("wt", None), ("wb", "gzip"), ("wt", "bz2")]
)
def test_a_dropped_file_has_all_that_its_layers_held(
    fs: PaxosBlockFileSystem, home: str, mode: str, compression: str | None
) -> None:
    out = fs.open(f"{home}/a", mode, compression=compression, chunk_size=1000)
    for number in range(3000):
        out.write(f"{number}\n" if mode == "wt" else b"%d\n" % number)
    del out
    with fs.open(f"{home}/a", "rt", compression=compression) as file:
        assert [int(line) for line in file] == list(range(3000))
    assert staged(fs) == []


def test_a_file_dropped_in_a_transaction_is_published_with_the_others(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    with fs.transaction:
        np.save(fs.open(f"{home}/a.npy", "wb"), np.arange(10))
        fs.pipe_file(f"{home}/b", b"b")
        assert fs.ls(home) == []
    assert np.load(fs.open(f"{home}/a.npy")).sum() == 45
    with pytest.raises(InvalidRequestError, match="kept' is open"), fs.transaction:
        kept = fs.open(f"{home}/kept", "wb")
    kept.close()
    assert fs.ls(home, detail=False) == [f"{home}/a.npy", f"{home}/b"]


def test_a_file_dropped_while_an_exception_is_under_way_is_lost_and_told(
    fs: PaxosBlockFileSystem, home: str, caplog: pytest.LogCaptureFixture
) -> None:
    fs.pipe_file(f"{home}/a", b"old")
    out = fs.open(f"{home}/a", "wb")
    try:
        out.write(b"half")
        raise Oops
    except Oops:
        del out
    (warning,) = warnings_of(caplog)
    assert f"'{home}/a' {LOST}" in warning
    assert "Oops" in warning
    assert STAGING not in warning
    assert fs.cat_file(f"{home}/a") == b"old"
    wait_until(lambda: staged(fs) == [], what="the hidden file is gone")


def test_a_file_opened_while_an_exception_was_handled_is_published(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    try:
        raise Oops
    except Oops:
        np.save(fs.open(f"{home}/a.npy", "wb"), np.arange(10))
    assert fs.exists(f"{home}/a.npy")


def test_a_file_whose_write_failed_is_not_published_without_a_close(
    fs: PaxosBlockFileSystem, home: str, caplog: pytest.LogCaptureFixture
) -> None:
    out = fs.open(f"{home}/a", "wb")
    out.write(b"first")
    with pytest.raises(TypeError):
        out.write("no bytes")
    del out
    (warning,) = warnings_of(caplog)
    assert f"'{home}/a' {LOST}" in warning
    assert "write failed" in warning
    assert fs.ls(home) == []


def test_a_target_that_is_taken_meanwhile_is_told(
    fs: PaxosBlockFileSystem, home: str, caplog: pytest.LogCaptureFixture
) -> None:
    out = fs.open(f"{home}/a", "xb")
    fs.pipe_file(f"{home}/a", b"first")
    del out
    (warning,) = warnings_of(caplog)
    assert f"'{home}/a' {LOST}" in warning
    assert "exists" in warning
    assert fs.cat_file(f"{home}/a") == b"first"


def test_a_file_collected_on_the_event_loop_is_published_and_nothing_stands_still(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    held = [fs.open(f"{home}/{name}", "wt", compression="gzip") for name in "ab"]
    for out in held:
        out.write("x" * 100_000)
    del out

    async def drop() -> None:
        held.clear()

    fs.runner.run(drop)
    wait_until(lambda: len(fs.ls(home)) == 2, what="both are published")
    with fs.open(f"{home}/b", "rt", compression="gzip") as file:
        assert len(file.read()) == 100_000


@pytest.mark.parametrize(
    ("mode", "compression"), [("wb", None), ("wt", None), ("wb", "gzip"), ("wt", "gzip")]
)
def test_a_file_in_a_cycle_is_published_when_it_is_collected(
    fs: PaxosBlockFileSystem, home: str, mode: str, compression: str | None
) -> None:
    """The objects of a cycle end in any order: what is below must not end first."""
    cycle: dict[str, Any] = {"out": fs.open(f"{home}/a", mode, compression=compression)}
    cycle["itself"] = cycle
    cycle["out"].write("all" if mode == "wt" else b"all")
    del cycle
    collecting = threading.Thread(target=gc.collect)  # another thread than the one that wrote
    collecting.start()
    collecting.join()
    with fs.open(f"{home}/a", compression=compression) as file:
        assert file.read() == b"all"


def test_an_asynchronous_file_that_is_dropped_is_told_as_lost(
    cluster: LocalCluster,
    fs: PaxosBlockFileSystem,
    home: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def write() -> None:
        mine = PaxosBlockFileSystem(cluster.url, asynchronous=True, skip_instance_cache=True)
        out = await mine.open_async(f"{home}/a", "wb")
        await out.write(b"all")
        del out
        await mine.aclose()

    asyncio.run(write())
    (warning,) = [each for each in warnings_of(caplog) if LOST in each]
    assert f"'{home}/a' {LOST}" in warning
    assert fs.ls(home) == []


# -- the program ends -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("out = fs.open(path + '/a', 'wb'); out.write(b'all')", b"all"),
        ("out = fs.open(path + '/a', 'wt'); out.write('all')", b"all"),
        ("out = fsspec.open(sys.argv[1] + '/a', 'wt').open(); out.write('all')", b"all"),
        ("out = io.BufferedWriter(fs.open(path + '/a', 'wb')); out.write(b'all')", b"all"),
        ("import numpy; numpy.save(fs.open(path + '/a', 'wb'), numpy.zeros(0))", None),
        (
            "import polars; polars.DataFrame({'a': [1]}).write_csv(fs.open(path + '/a', 'wb'))",
            b"a\n1\n",
        ),
        ("def main():\n  out = fs.open(path + '/a', 'wb'); out.write(b'all'); sys.exit(0)\nmain()",
         b"all"),
        (  # the end of the program is the end of its threads
            "out = fs.open(path + '/a', 'wb')\n"
            "threading.Thread(target=lambda: out.write(b'all')).start()",
            b"all",
        ),
    ],
)  # fmt: skip
def test_a_program_that_ends_has_published_what_it_never_closed(
    cluster: LocalCluster, fs: PaxosBlockFileSystem, home: str, script: str, expected: bytes | None
) -> None:
    done = end(script, cluster.url + home)
    assert (done.returncode, done.stderr) == (0, "")
    found = fs.cat_file(f"{home}/a")
    assert found == expected or (expected is None and found.startswith(b"\x93NUMPY"))
    assert staged(fs) == []


def test_layers_that_are_not_ours_are_completed_first_at_the_end(
    cluster: LocalCluster, fs: PaxosBlockFileSystem, home: str
) -> None:
    script = """
archive = zipfile.ZipFile(fs.open(path + "/a.zip", "wb"), "w")
archive.writestr("one", "1")
text = fsspec.open(sys.argv[1] + "/a.gz", "wt", compression="gzip").open()
text.write("x" * 1000)
"""
    done = end(script, cluster.url + home)
    assert (done.returncode, done.stderr) == (0, "")
    with zipfile.ZipFile(fs.open(f"{home}/a.zip")) as archive:
        assert archive.read("one") == b"1"
    with fs.open(f"{home}/a.gz", "rt", compression="gzip") as file:
        assert file.read() == "x" * 1000


def test_a_cluster_by_name_is_reached_at_the_end_too(
    cluster: LocalCluster, fs: PaxosBlockFileSystem, home: str
) -> None:
    """Names are looked up on other threads, which take no more work then."""
    script = "out = fs.open(path + '/a', 'wb'); out.write(b'all')"
    url = cluster.url.replace("127.0.0.1", "localhost")
    done = end(script, url + home)
    assert (done.returncode, done.stderr) == (0, "")
    assert fs.cat_file(f"{home}/a") == b"all"


@pytest.mark.parametrize("where", ["in a function", "in the module", "as text", "as text.gz"])
def test_a_program_that_fails_tells_in_one_line_what_it_lost(
    cluster: LocalCluster, fs: PaxosBlockFileSystem, home: str, where: str
) -> None:
    fs.pipe_file(f"{home}/a", b"old")
    mode, data = ("wt", "'half'") if "text" in where else ("wb", "b'half'")
    options = "compression='gzip'" if where.endswith("gz") else ""
    script = (
        f"out = fs.open(path + '/a', '{mode}', {options})\n"
        f"  out.write({data})\n  raise KeyError('why')"
    )
    head = "def main():" if where == "in a function" else "if True:"
    script = f"{head}\n  {script}\nmain()"
    done = end(script, cluster.url + home)
    assert done.returncode == 1
    (line,) = [each for each in done.stderr.splitlines() if "lost" in each]
    assert f"'{home}/a' {LOST}" in line
    assert "KeyError('why')" in line
    assert STAGING not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert fs.cat_file(f"{home}/a") == b"old"
    assert staged(fs) == []


def test_a_forked_process_leaves_the_files_of_its_parent_alone(
    cluster: LocalCluster, fs: PaxosBlockFileSystem, home: str
) -> None:
    script = """
import gc, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of fork itself, in development mode
out = fs.open(path + "/a", "wb")
text = fs.open(path + "/b", "wt")
out.write(b"first ")
text.write("text")
child = os.fork()
if child == 0:
    del text
    gc.collect()
    sys.exit(0)  # with its own end of the program, at which `out` is open
assert os.waitpid(child, 0)[1] == 0
assert fs.ls(path) == []
out.write(b"second")
"""
    done = end(script, cluster.url + home)
    assert (done.returncode, done.stderr) == (0, "")
    assert fs.cat_file(f"{home}/a") == b"first second"
    assert fs.cat_file(f"{home}/b") == b"text"


def test_a_cluster_that_is_gone_at_the_end_is_told(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    """Of what was not published. Of what was, there is nothing to say, and little to wait for."""
    script = """
options = {"staging_ttl": "3s", "retry_for_s": sys.argv[2]}
fs = fsspec.filesystem("paxosblock", namenodes=fs.namenodes, **options)
out = fs.open(path + "/a", "wb")
out.write(b"all")
"""
    told = """
print("written", flush=True)
sys.stdin.readline()
"""
    with ExitStack() as stack:
        opened = stack.enter_context(begun(script + told, cluster.url + home, "1s"))
        closed = stack.enter_context(begun(script + "out.close()" + told, cluster.url + home, "1h"))
        for program in (opened, closed):
            assert program.stdout is not None
            assert program.stdout.readline() == "written\n"
        cluster.namenode.kill()
        try:
            _, errors = opened.communicate("\n", timeout=120)
            assert closed.communicate("\n", timeout=120) == ("", "")
        finally:
            cluster.namenode.start()
            wait_until(lambda: len(cluster.status().datanodes) == 4, 30, "all DataNodes are back")
            cluster.wait_registered()
    assert f"'{home}/a' {LOST}" in errors
    assert (opened.returncode, closed.returncode) == (0, 0)
    assert fs.cat_file(f"{home}/a") == b"all"
    wait_until(lambda: staged(fs) == [], 30, "the time to live of the hidden files has passed")
