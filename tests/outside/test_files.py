"""Files through fsspec: modes, positions, pieces, memory, and when a name appears."""

from __future__ import annotations

import gzip
import io
import os
import pickle
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pyarrow.fs
import pytest
from fsspec.callbacks import Callback
from fsspec.spec import AbstractBufferedFile

from paxosblock.client.blocking.sync import Client
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.errors import ConfigError, InvalidRequestError, LeaseError
from paxosblock.local.cluster import LocalCluster
from tests.outside.programs import run
from tests.outside.staging import staged

DATA = os.urandom(100_000)


class Oops(Exception):
    """An error that the tests raise in the middle of a block."""


def test_what_was_written_in_pieces_is_read_at_any_position(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    with fs.open(f"{home}/a", "wb", chunk_size=1000, block_size=7000) as out:
        for start in range(0, len(DATA), 333):
            assert out.tell() == start
            out.write(DATA[start : start + 333])
    with fs.open(f"{home}/a") as file:
        assert isinstance(file, AbstractBufferedFile)
        assert (file.read(10), file.tell()) == (DATA[:10], 10)
        assert file.seek(-50, io.SEEK_END) == len(DATA) - 50
        assert file.read() == DATA[-50:]
        assert file.read(1) == b""
        assert file.seek(6990) == 6990
        into = bytearray(20)
        assert file.readinto(into) == 20
        assert into == DATA[6990:7010]
        file.seek(5)
        assert file.read() == DATA[5:]


def test_the_files_of_a_dict_are_written_together_and_replace_only_what_they_may(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    wanted = {f"{home}/few/{number:03}": DATA[:number] for number in range(60)}
    fs.pipe(wanted, replication=2)
    assert fs.cat(fs.find(f"{home}/few")) == wanted
    assert fs.info(f"{home}/few/007")["replication"] == 2
    with pytest.raises(FileExistsError):
        fs.pipe({f"{home}/few/001": b"new", f"{home}/new": b"new"}, mode="create")
    assert not fs.exists(f"{home}/new"), "which came with one that could not"
    fs.pipe({f"{home}/few/001": b"new"})
    assert fs.cat_file(f"{home}/few/001") == b"new"


@pytest.mark.parametrize("cache_type", ["none", "readahead"])
def test_a_file_being_read_has_the_names_that_fsspec_gives_it(
    fs: PaxosBlockFileSystem, home: str, cache_type: str
) -> None:
    fs.pipe_file(f"{home}/a", DATA)
    with fs.open(f"{home}/a", cache_type=cache_type, block_size=1000) as file:
        assert (file.fs, file.path, file.mode) == (fs, f"{home}/a", "rb")
        assert (file.size, file.blocksize) == (len(DATA), 1000)
        assert (file.info(), file.full_name) == (fs.info(file.path), fs.unstrip_protocol(file.path))
        assert file.readuntil(DATA[700:710]) == DATA[:710]
        assert (file.loc, file.tell()) == (710, 710)
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        with fs.open(f"{home}/a") as same:
            assert isinstance(same, io.BufferedReader)
            assert hash(same) == hash(file)
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


@pytest.mark.parametrize("cache_type", ["none", "readahead", "bytes", "all", "blockcache"])
def test_every_cache_of_fsspec_shows_the_same_bytes(
    fs: PaxosBlockFileSystem, home: str, cache_type: str
) -> None:
    fs.pipe_file(f"{home}/a", DATA)
    with fs.open(f"{home}/a", cache_type=cache_type, block_size=1000) as file:
        for start in (0, 50_000, 10, 99_990):
            file.seek(start)
            assert file.read(1500) == DATA[start : start + 1500]


def test_lines_come_as_from_any_file_of_python(fs: PaxosBlockFileSystem, home: str) -> None:
    lines = [b"one\n", b"\n", b"x" * 200_000 + b"\n", b"last"]
    fs.pipe_file(f"{home}/a", b"".join(lines))
    with fs.open(f"{home}/a") as file:
        assert list(file) == lines
        file.seek(0)
        assert file.readlines() == lines
        file.seek(0)
        assert (file.readline(), file.tell()) == (b"one\n", 4)
        assert file.read(1) == b"\n"


def test_text_has_its_encoding_and_newlines(fs: PaxosBlockFileSystem, home: str) -> None:
    with fs.open(f"{home}/a", "w", encoding="latin-1", newline="\r\n") as text:
        text.write("grün\nblau\n")
    assert fs.cat_file(f"{home}/a").decode("latin-1") == "grün\r\nblau\r\n"
    with fs.open(f"{home}/a", "rt", encoding="latin-1") as text:
        assert text.read() == "grün\nblau\n"


def test_a_compressed_file_is_complete_when_it_is_closed(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    with fs.open(f"{home}/a.gz", "wb", compression="infer") as out:
        out.write(b"hello")
    assert gzip.decompress(fs.cat_file(f"{home}/a.gz")) == b"hello"
    with fs.open(f"{home}/b.gz", "wt", compression="gzip") as text:
        text.write("hello")
    with fs.open(f"{home}/b.gz", "rt", compression="gzip") as text:
        assert text.read() == "hello"


def test_appending_goes_on_where_the_file_ends(fs: PaxosBlockFileSystem, home: str) -> None:
    for size, piece in ((0, b"one"), (3, b" two"), (7, b" three")):
        with fs.open(f"{home}/a", "ab") as out:
            assert out.tell() == size
            out.write(piece)
    assert fs.cat_file(f"{home}/a") == b"one two three"


def test_a_reader_keeps_the_file_that_it_opened(fs: PaxosBlockFileSystem, home: str) -> None:
    fs.pipe_file(f"{home}/a", DATA)
    with fs.open(f"{home}/a") as file:
        fs.pipe_file(f"{home}/b", b"new")
        fs.mv(f"{home}/b", f"{home}/a")
        assert file.size == len(DATA)
    assert fs.cat_file(f"{home}/a") == b"new"


def test_a_file_appears_when_it_is_closed_and_replaces_the_old_one_then(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    for path, before in ((f"{home}/new", None), (f"{home}/old", b"old")):
        if before is not None:
            fs.pipe_file(path, before)
        with fs.open(path, "wb") as out:
            out.write(DATA)
            out.flush()
            assert fs.exists(path) == (before is not None)
            assert before is None or fs.cat_file(path) == before
        assert fs.cat_file(path) == DATA


def test_an_exclusive_file_is_refused_at_the_open_and_at_the_close(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    out = fs.open(f"{home}/a", "xb")
    fs.pipe_file(f"{home}/a", b"first")
    with pytest.raises(FileExistsError):
        out.close()
    with pytest.raises(FileExistsError):
        fs.open(f"{home}/a", "xb")
    assert fs.cat_file(f"{home}/a") == b"first"


# -- leaving a block by an exception --------------------------------------------------------------


def leave_own_block(fs: PaxosBlockFileSystem, path: str) -> None:
    with fs.open(path, "wb") as out:
        out.write(DATA)
        raise Oops


def leave_text(fs: PaxosBlockFileSystem, path: str) -> None:
    with fs.open(path, "w") as out:
        out.write("half")
        raise Oops


def leave_compressed(fs: PaxosBlockFileSystem, path: str) -> None:
    with fs.open(path, "wb", compression="gzip") as out:
        out.write(DATA)
        raise Oops


def leave_compressed_text(fs: PaxosBlockFileSystem, path: str) -> None:
    with fs.open(path, "wt", compression="bz2") as out:
        out.write("half")
        raise Oops


def leave_append(fs: PaxosBlockFileSystem, path: str) -> None:
    with fs.open(path, "ab") as out:
        out.write(DATA)
        raise Oops


def leave_block_of_fsspec(fs: PaxosBlockFileSystem, path: str) -> None:
    with fsspec.open(fs.unstrip_protocol(path), "wb") as out:
        out.write(DATA)
        raise Oops


def leave_text_of_fsspec(fs: PaxosBlockFileSystem, path: str) -> None:
    with fsspec.open(fs.unstrip_protocol(path), "wt", compression="gzip") as out:
        out.write("half")
        raise Oops


def leave_generator(fs: PaxosBlockFileSystem, path: str) -> None:
    @contextmanager
    def opened() -> Any:
        out = fs.open(path, "wb")
        try:
            yield out
        finally:
            out.close()

    with opened() as out:
        out.write(DATA)
        raise Oops


def leave_stack(fs: PaxosBlockFileSystem, path: str) -> None:
    with ExitStack() as stack:
        out = fs.open(path, "wt", compression="gzip")
        stack.callback(out.close)
        out.write("half")
        raise Oops


def leave_pandas(fs: PaxosBlockFileSystem, path: str) -> None:
    class Broken:
        def __str__(self) -> str:
            raise Oops

    rows = pd.DataFrame({"a": [*("row",) * 10_000, Broken()]})
    rows.to_csv(fs.unstrip_protocol(path), compression=None)


def leave_pyarrow(fs: PaxosBlockFileSystem, path: str) -> None:
    with pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs)).open_output_stream(path) as out:
        out.write(DATA)
        raise Oops


LEAVE = [
    leave_own_block,
    leave_text,
    leave_compressed,
    leave_compressed_text,
    leave_append,
    leave_block_of_fsspec,
    leave_text_of_fsspec,
    leave_generator,
    leave_stack,
    leave_pandas,
    leave_pyarrow,
]
OWN = LEAVE[:5]
"""Blocks of the file itself: what ends them tells of it, so no warning is needed."""


@pytest.mark.parametrize("leave", LEAVE)
def test_leaving_by_an_exception_publishes_nothing_and_leaves_nothing_behind(
    fs: PaxosBlockFileSystem, home: str, leave: Any
) -> None:
    with pytest.raises(Oops):
        leave(fs, f"{home}/a")
    assert fs.ls(home) == []
    assert staged(fs) == []


@pytest.mark.parametrize("leave", LEAVE)
def test_leaving_by_an_exception_keeps_the_old_content(
    fs: PaxosBlockFileSystem, home: str, leave: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fs.pipe_file(f"{home}/a", b"old")
    with pytest.raises(Oops):
        leave(fs, f"{home}/a")
    assert fs.cat_file(f"{home}/a") == b"old"
    assert staged(fs) == []
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(told) == (leave not in OWN)
    assert all(f"'{home}/a' was not published" in each and "Oops" in each for each in told)


def close_in_except(out: Any, report: Any) -> None:
    try:
        raise Oops
    except Oops:
        out.write(report)
        out.close()


def close_in_finally(out: Any, report: Any) -> None:
    with suppress(Oops):
        try:
            out.write(report)
            raise Oops
        finally:
            out.close()


@pytest.mark.parametrize("close", [close_in_except, close_in_finally])
@pytest.mark.parametrize(("mode", "compression"), [("wb", None), ("wt", None), ("wb", "gzip")])
def test_a_file_that_the_program_closes_while_it_deals_with_an_exception_is_published(
    *,
    fs: PaxosBlockFileSystem,
    home: str,
    close: Any,
    mode: str,
    compression: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is the log of a failure, as likely as not."""
    out = fs.open(f"{home}/a", mode, compression=compression)
    close(out, "report" if mode == "wt" else b"report")
    assert caplog.records == []
    with fs.open(f"{home}/a", compression=compression) as file:
        assert file.read() == b"report"


@pytest.mark.parametrize(("mode", "compression"), [("wb", None), ("wt", None), ("wb", "gzip")])
def test_a_block_of_its_own_that_ends_well_in_an_except_clause_publishes(
    fs: PaxosBlockFileSystem, home: str, mode: str, compression: str | None
) -> None:
    out = fs.open(f"{home}/a", mode, compression=compression)
    try:
        raise Oops
    except Oops:
        with out:
            out.write("report" if mode == "wt" else b"report")
    with fs.open(f"{home}/a", compression=compression) as file:
        assert file.read() == b"report"


def test_a_file_closed_after_the_except_clause_is_published(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    out = fs.open(f"{home}/a", "wb")
    try:
        raise Oops
    except Oops:
        out.write(b"report")
    finally:
        out.close()
    assert fs.cat_file(f"{home}/a") == b"report"


def test_a_file_written_while_another_error_is_handled_is_published(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    try:
        raise Oops
    except Oops:
        with fsspec.open(fs.unstrip_protocol(f"{home}/a"), "wb") as out:
            out.write(b"report")
    assert fs.cat_file(f"{home}/a") == b"report"


def test_a_closed_file_says_so(fs: PaxosBlockFileSystem, home: str) -> None:
    with fs.open(f"{home}/a", "wb") as out:
        out.write(b"a")
    out.close()
    with pytest.raises(ValueError, match="closed"):
        out.write(b"b")
    with fs.open(f"{home}/a") as file:
        pass
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_a_name_that_another_client_is_writing_is_not_replaced(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    with Client(cluster.url) as client, client.create(f"{home}/a") as other:
        other.write(b"other")
        with pytest.raises(LeaseError):
            fs.pipe_file(f"{home}/a", b"mine")
    assert fs.cat_file(f"{home}/a") == b"other"
    assert staged(fs) == []


# -- whole files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end"), [(None, None), (10, 20), (-20, None), (-20, -10), (None, -99_990), (5, 5)]
)
def test_a_range_counts_from_both_ends(
    fs: PaxosBlockFileSystem, home: str, start: int | None, end: int | None
) -> None:
    fs.pipe_file(f"{home}/a", DATA)
    assert fs.cat_file(f"{home}/a", start, end) == DATA[start:end]


def test_many_ranges_come_in_order_with_their_errors(fs: PaxosBlockFileSystem, home: str) -> None:
    fs.pipe({f"{home}/a": DATA, f"{home}/b": b"short"})
    paths = [f"{home}/a", f"{home}/b", f"{home}/missing", f"{home}/a"]
    first, second, error, last = fs.cat_ranges(paths, [0, 1, 0, -5], [10, None, 1, None])
    assert (first, second, last) == (DATA[:10], b"hort", DATA[-5:])
    assert isinstance(error, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 1, on_error="raise")


class Progress(Callback):  # type: ignore[misc] # fsspec has no types
    """Remembers the size it was told, and every value."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[int] = []

    def call(self, *args: Any, **kwargs: Any) -> None:
        self.values.append(self.value)


def test_put_and_get_tell_their_progress(
    fs: PaxosBlockFileSystem, home: str, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.write_bytes(DATA * 50)
    for work in (fs.put_file, fs.get_file):
        progress = Progress()
        ends = (local, f"{home}/a") if work == fs.put_file else (f"{home}/a", tmp_path / "back")
        work(*map(str, ends), callback=progress)
        assert progress.size == len(DATA) * 50
        assert progress.values[-1] == len(DATA) * 50
        assert len(progress.values) > 2
    assert (tmp_path / "back").read_bytes() == DATA * 50


def test_a_download_that_fails_leaves_the_old_local_file(
    fs: PaxosBlockFileSystem, home: str, tmp_path: Path
) -> None:
    (tmp_path / "local").write_bytes(b"old")
    with pytest.raises(FileNotFoundError):
        fs.get_file(f"{home}/missing", str(tmp_path / "local"))
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


def test_a_copy_within_the_cluster_is_byte_for_byte(fs: PaxosBlockFileSystem, home: str) -> None:
    fs.pipe_file(f"{home}/a", DATA, chunk_size=1000)
    fs.cp_file(f"{home}/a", f"{home}/deep/b")
    assert fs.cat_file(f"{home}/deep/b") == DATA


@pytest.mark.parametrize("mode", ["r+b", "w+b", "nonsense"])
def test_a_mode_that_makes_no_sense_is_refused(
    fs: PaxosBlockFileSystem, home: str, mode: str
) -> None:
    with pytest.raises((InvalidRequestError, ValueError)):
        fs.open(f"{home}/a", mode)


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "option", "message"),
    [
        ("wb", "replicaton", "unknown option 'replicaton'; did you mean 'replication'"),
        ("rb", "replication", "option 'replication' has no effect on a file to read"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(
    fs: PaxosBlockFileSystem, home: str, mode: str, option: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fs.open(f"{home}/a", mode, None, None, None, **{option: 2})
    assert fs.ls(home) == []


def test_options_of_other_file_systems_are_ignored_as_these_ignore_each_others(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    with fs.open(f"{home}/a", "wb", acl="private", content_type="text/plain") as file:
        file.write(b"ours")
    with fs.open(f"{home}/a", default_cache="none", version_id=None) as file:
        assert file.read() == b"ours"


def test_an_open_file_and_its_position_travel_by_pickle(
    fs: PaxosBlockFileSystem, home: str
) -> None:
    fs.pipe_file(f"{home}/a", DATA)
    with fs.open(f"{home}/a") as file:
        file.seek(50)
        with pickle.loads(pickle.dumps(file)) as copy:
            assert copy.read(10) == DATA[50:60]


def test_a_forked_process_makes_a_file_system_of_its_own(cluster: LocalCluster, home: str) -> None:
    script = """
import fsspec, os, sys
url = sys.argv[1]
fs, path = fsspec.url_to_fs(url)
fs.pipe_file(f"{path}/a", b"parent")
inherited = fs.open(f"{path}/a")
child = os.fork()
if child == 0:
    try:
        fs.ls("/")
    except RuntimeError as error:
        print(error, flush=True)
    mine, _ = fsspec.url_to_fs(url)
    mine.pipe_file(f"{path}/b", mine.cat_file(f"{path}/a") + b" child")
    mine.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert inherited.read() == b"parent"
inherited.close()
print(fs.cat_file(f"{path}/b").decode())
"""
    assert run(script, cluster.url + home) == "This class is not fork-safe\nparent child\n"


def test_a_file_of_any_size_needs_little_memory(cluster: LocalCluster, home: str) -> None:
    """160 MiB in blocks of 128 MiB, written, read and copied: less than 64 MiB above the start."""
    script = """
import fsspec, resource, sys
def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
fs, path = fsspec.url_to_fs(sys.argv[1], durability="memory")
fs.pipe_file(f"{path}/small", b"x")
piece = bytes(range(256)) * 4096
before = peak_mib()
with fs.open(f"{path}/large", "wb") as out:
    for _ in range(160):
        out.write(piece)
with fs.open(f"{path}/large") as file:
    for _ in range(160):
        assert file.read(len(piece)) == piece
    assert file.read() == b""
fs.cp_file(f"{path}/large", f"{path}/copy")
print(peak_mib() - before)
"""
    assert float(run(script, cluster.url + home)) < 64
