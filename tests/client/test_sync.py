"""`Client` and its files, against the shipped nodes on the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.blocking.loop_thread import BackgroundLoop
from paxosblock.client.blocking.sync import Client, FileWriter
from paxosblock.errors import (
    DeadlineError,
    InvalidRequestError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.protocol.types import ChunkIndex, Generation, Reason
from tests.children import without_slow_steps
from tests.client.shipped import ShippedCluster, shipped_cluster


async def using(
    work: Callable[[Client, ShippedCluster], None], count: int = 3, *, retry_for_s: float = 10.0
) -> None:
    """Run `work` with a synchronous client on a thread of its own."""

    def run(cluster: ShippedCluster, fs: AsyncClient) -> None:
        with Client([cluster.address], fs.config) as client:
            work(client, cluster)

    async with shipped_cluster(count, retry_for_s=retry_for_s) as (cluster, fs):
        await asyncio.to_thread(run, cluster, fs)


def content(cluster: ShippedCluster) -> bytes:
    """The bytes of /a, asked for on the loop of the cluster."""
    return cluster.from_thread(cluster.content("/a"))


async def test_a_file_goes_in_and_comes_out_byte_for_byte() -> None:
    data = os.urandom(100 * KIB + 17)

    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a", chunk_size=4 * KIB, block_size=32 * KIB) as out:
            for start in range(0, len(data), 1000):
                out.write(data[start : start + 1000])
            assert out.tell() == len(data)
        assert content(cluster) == data
        with fs.open("/a") as file:
            assert file.read(10) == data[:10]
            assert file.pread(50 * KIB, 10) == data[50 * KIB : 50 * KIB + 10]
            assert file.read() == data[10:]
            assert file.read(1) == b""

    await using(work)


async def test_a_file_is_open_for_reading_or_for_writing_and_says_so() -> None:
    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a") as out, pytest.raises(io.UnsupportedOperation, match=r"'/a'.*reading"):
            out.read(1)
        with fs.open("/a") as file, pytest.raises(io.UnsupportedOperation, match=r"'/a'.*writing"):
            file.write(b"x")

    await using(work)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_large_and_small_writes_mix_in_any_order(kind: type) -> None:
    data = os.urandom(64 * KIB)

    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a", chunk_size=1000) as out:
            at = 0
            for size in (1, 998, 1, 1, 999, 5000, 7, 1000, 30_000, 12):
                out.write(kind(data[at : at + size]))
                at += size
        assert content(cluster) == data[:at]

    await using(work)


async def test_small_writes_do_not_cross_to_the_other_thread() -> None:
    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a", chunk_size=1000) as out:
            for _ in range(999):
                out.write(b"x")
            assert cluster.calls == ["create"]
            out.write(b"x")
            assert out.hflush().size == 1000

    await using(work)


async def test_files_fit_into_pythons_own_wrappers() -> None:
    def work(fs: Client, cluster: ShippedCluster) -> None:
        with io.TextIOWrapper(fs.create("/a"), encoding="utf-8") as text:
            text.write("grün\nblau\n")
        with io.TextIOWrapper(io.BufferedReader(fs.open("/a")), encoding="utf-8") as text:
            assert text.readlines() == ["grün\n", "blau\n"]
        with fs.open("/a") as file:
            assert list(file) == ["grün\n".encode(), b"blau\n"]

    await using(work)


async def test_seek_and_read_inside_what_is_held_need_no_other_request() -> None:
    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a") as out:
            out.write(bytes(range(100)))
        with fs.open("/a") as file:
            assert file.read(100) == bytes(range(100))
            before = sum(node.wire.runs for node in cluster.nodes)
            assert file.seek(10) == 10
            assert file.read(5) == bytes(range(10, 15))
            assert file.seek(5, io.SEEK_CUR) == 20
            assert file.read(1) == bytes([20])
            assert file.seek(-1, io.SEEK_END) == 99
            assert file.readall() == bytes([99])
            assert sum(node.wire.runs for node in cluster.nodes) == before

    await using(work)


async def test_pieces_hold_the_whole_file() -> None:
    data = os.urandom(50 * KIB)

    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a", chunk_size=KIB) as out:
            out.write(data)
        with fs.open("/a") as file:
            assert b"".join(file.pieces()) == data

    await using(work)


async def test_a_file_whose_length_is_not_decided_is_read_up_to_there_and_no_size_is_told() -> None:
    data = os.urandom(95)

    def work(fs: Client, cluster: ShippedCluster) -> None:
        out = fs.create("/a", chunk_size=10, block_size=40)
        out.write(data)
        out.hflush()
        cluster.from_thread(cluster.begin_recovery("/a"))
        with fs.open("/a") as file:
            assert ("under recovery" in file.undecided, file.decided_size) == (True, 80)
            assert "at least 80" in repr(file)
            for read_all in (file.read, file.readall, lambda: file.seek(0, io.SEEK_END)):
                with pytest.raises(UnavailableError, match="only the first 80 bytes"):
                    read_all()
            with pytest.raises(UnavailableError):
                _ = file.size
            with pytest.raises(UnavailableError):
                io.TextIOWrapper(io.BufferedReader(file), "latin1").read()
        with fs.open("/a") as file:
            buffer = bytearray(50)
            assert (file.readinto(buffer), file.read(50)) == (50, data[50:80])
            assert buffer == data[:50]
            for read_on in (lambda: file.read(50), lambda: file.readinto(buffer)):
                with pytest.raises(UnavailableError):
                    read_on()
            assert (file.tell(), file.read(0), file.pread(60, 20)) == (80, b"", data[60:80])
            cluster.from_thread(cluster.end_recovery())
            assert (file.read(50), file.size, file.undecided) == (data[80:], 95, "")
        with fs.open("/a") as file:
            assert b"".join(file.pieces()) == data
        out.abort()

    await using(work, retry_for_s=0.3)


async def test_follow_is_an_ordinary_iterator() -> None:
    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a") as out:
            out.write(b"hello")
            out.hflush()
            tail = fs.follow("/a")
            assert next(tail) == b"hello"
        assert list(tail) == []

    await using(work)


async def test_leaving_by_an_exception_drops_what_was_not_flushed() -> None:
    def work(fs: Client, cluster: ShippedCluster) -> None:
        def fail() -> None:
            with fs.create("/a") as out:
                out.write(b"kept")
                out.flush()
                out.write(b"dropped")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert content(cluster) == b"kept"

    await using(work)


@contextlib.contextmanager
def no_room(cluster: ShippedCluster) -> Iterator[None]:
    """Every DataNode refuses chunks meanwhile."""
    for node in cluster.nodes:
        node.wire.faults.refuses_chunks = Reason.NO_SPACE
    yield
    for node in cluster.nodes:
        node.wire.faults.refuses_chunks = None


async def test_what_a_failed_write_did_not_take_is_written_by_the_next_call() -> None:
    data = os.urandom(20 * KIB)

    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a", chunk_size=KIB) as out:
            out.write(data[:KIB])
            out.hflush()
            with no_room(cluster):
                assert out.write(data[KIB:]) == 19 * KIB, "taken, and on its way"
                with pytest.raises(PaxosBlockError):
                    out.hflush()
            assert out.hflush().size == len(data)
        assert content(cluster) == data

    await using(work, retry_for_s=1.0)


async def test_a_close_tries_again_what_failed_before_it_was_called() -> None:
    """There is no later call that could, and the caller has not heard of the failure yet."""
    data = os.urandom(20 * KIB)

    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a", chunk_size=KIB) as out, no_room(cluster):
            out.write(data)
            assert out._handed_over is not None
            out._handed_over.running.wait()
        assert content(cluster) == data

    await using(work, retry_for_s=1.0)


def write_the_rest(out: FileWriter, data: bytes) -> None:
    while out.tell() < len(data):
        out.write(data[out.tell() : out.tell() + 700])


async def test_after_a_failed_write_tell_says_what_was_taken() -> None:
    data = os.urandom(20 * KIB)

    def work(fs: Client, cluster: ShippedCluster) -> None:
        with fs.create("/a", chunk_size=KIB) as out:
            with no_room(cluster), pytest.raises(PaxosBlockError):
                write_the_rest(out, data)
            write_the_rest(out, data)
        assert content(cluster) == data

    await using(work, retry_for_s=1.0)


def write_each(out: io.BufferedWriter[FileWriter], pieces: list[bytes]) -> None:
    """Take a piece from the list when it is written."""
    while pieces:
        out.write(pieces[0])
        del pieces[0]


async def test_what_pythons_own_buffer_writes_again_after_an_error_is_in_the_file_once() -> None:
    data = os.urandom(20 * KIB)

    def work(fs: Client, cluster: ShippedCluster) -> None:
        with io.BufferedWriter(fs.create("/a", chunk_size=KIB), 300) as out:
            pieces = [data[at : at + 200] for at in range(0, len(data), 200)]
            with no_room(cluster), pytest.raises(PaxosBlockError):
                write_each(out, pieces)
            write_each(out, pieces)
        assert content(cluster) == data

    await using(work, retry_for_s=1.0)


async def test_the_verbs_of_the_seed_write_and_finalize_a_block() -> None:
    def work(fs: Client, cluster: ShippedCluster) -> None:
        view = fs.blocks.add(durability="memory")
        block, first = view.record.block, Generation(0)
        nodes = [fs.blocks.datanode(member) for member in view.members]
        for index, data in enumerate((b"one", b"two")):
            votes = [node.write(block, first, ChunkIndex(index), data) for node in nodes]
            assert [vote.index for vote in votes] == [index] * 3
        assert nodes[0].read(block) == (first, b"onetwo")
        assert nodes[0].read(block, 2, 2) == (first, b"et")
        with pytest.raises(InvalidRequestError, match="gap"):
            nodes[0].write(block, first, ChunkIndex(7), b"far")
        with pytest.raises(InvalidRequestError, match="not all members"):
            fs.blocks.finalize(block, 3)
        decided = fs.blocks.finalize(block, 2).record
        assert (decided.finalized, decided.length, decided.size_bytes) == (True, 2, 6)
        assert fs.blocks.get(block).record == decided

    await using(work)


async def test_a_chunk_that_some_members_hold_forbids_to_finalize_without_it() -> None:
    """W6: a quorum read has returned it."""

    def work(fs: Client, cluster: ShippedCluster) -> None:
        view = fs.blocks.add(durability="memory")
        block, first = view.record.block, Generation(0)
        for index, members in enumerate((view.members, view.members[:2])):
            for member in members:
                fs.blocks.datanode(member).write(block, first, ChunkIndex(index), b"data")
        for length in (1, 2):
            with pytest.raises(InvalidRequestError, match="not all members"):
                fs.blocks.finalize(block, length)

    await using(work)


async def test_a_read_of_one_replica_is_never_answered_by_another() -> None:
    """It was, when the DataNode that was asked failed and another one held the block."""

    def work(fs: Client, cluster: ShippedCluster) -> None:
        view = fs.blocks.add(durability="memory")
        block, (asked, *others) = view.record.block, view.members
        for member in view.members:
            fs.blocks.datanode(member).write(block, Generation(0), ChunkIndex(0), b"data")
        node = next(node for node in cluster.nodes if node.storage == asked.storage)
        node.wire.faults.ignores_reads = True
        with pytest.raises(DeadlineError):
            fs.blocks.datanode(asked).read(block)
        assert fs.blocks.datanode(others[0]).read(block) == (Generation(0), b"data")

    await using(work)


async def run_script(script: str, *, interrupt_at: str = "") -> tuple[int, str]:
    """Run a program that gets a cluster's address; its exit code and all that it printed.

    SIGINT is sent to it when it has printed `interrupt_at`.
    """
    async with shipped_cluster() as (cluster, _):
        command = [sys.executable, "-X", "dev", "-c", script, cluster.address]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            assert process.stdout is not None
            printed = b""
            async with asyncio.timeout(40):
                if interrupt_at:
                    printed = await process.stdout.readuntil(interrupt_at.encode())
                    process.send_signal(signal.SIGINT)
                printed += await process.stdout.read()
                return await process.wait(), without_slow_steps(printed.decode())
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()  # reaped, and its pipe closed, also when it hung


async def test_an_interrupt_while_waiting_leaves_the_client_usable() -> None:
    # What runs in the background of a shell that has no job control ignores SIGINT, and so does
    # what it starts; Python's own handler is then not there.
    script = """
import signal, sys
from paxosblock import Client
signal.signal(signal.SIGINT, signal.default_int_handler)
with Client([sys.argv[1]]) as fs, fs.create("/a") as out:
    out.write(b"hello")
    out.hflush()
    tail = fs.follow("/a")
    try:
        print(next(tail), flush=True)
        next(tail)
    except KeyboardInterrupt:
        print("interrupted")
    out.write(b" again")
    out.hflush()
    with fs.open("/a") as file:
        print(file.read())
"""
    code, printed = await run_script(script, interrupt_at="b'hello'\n")
    assert (code, printed) == (0, "b'hello'\ninterrupted\nb'hello again'\n")


def test_who_waits_is_told_how_long_it_takes() -> None:
    told: list[float] = []
    enough = asyncio.Event()
    background = BackgroundLoop()

    def tell(waited_s: float) -> None:
        told.append(waited_s)
        if len(told) == 2:
            background._loop.call_soon_threadsafe(enough.set)

    background.while_waiting = tell
    try:
        assert background.run(enough.wait)
    finally:
        background.stop(noop)
    assert 0 < told[0] < told[1]


def test_a_connection_that_breaks_while_the_client_ends_is_no_line_for_its_user(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = BackgroundLoop()

    async def breaks() -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "Fatal error on transport", "exception": RuntimeError("it is closed")}
        )

    background.stop(breaks)
    assert [each for each in caplog.records if each.levelno > logging.DEBUG] == []


async def noop() -> None:
    """Nothing is left to be done."""


def test_an_interrupt_that_another_thread_gets_is_heard_while_work_goes_on() -> None:
    # It wakes that thread only; one that comes just before a thread sleeps wakes none.
    script = """
import asyncio, signal, threading
from paxosblock.client.blocking.loop_thread import BackgroundLoop
signal.signal(signal.SIGINT, signal.default_int_handler)

async def work_for_ever():
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    await asyncio.Event().wait()

try:
    BackgroundLoop().run(work_for_ever)
except KeyboardInterrupt:
    print("interrupted")
"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert (result.stdout, result.stderr) == ("interrupted\n", "")


async def test_a_program_that_closes_nothing_still_ends() -> None:
    script = """
import sys
from paxosblock import Client
fs = Client([sys.argv[1]])
out = fs.create("/a")
out.write(b"hello")
out.hflush()
file = fs.open("/a")
print(file.read())
"""
    code, printed = await run_script(script)
    assert code == 0
    first, warning = printed.splitlines()
    assert first == "b'hello'"
    assert "ResourceWarning" in warning
    assert "'/a' open at 5> was never closed" in warning


async def test_a_forked_process_has_a_client_of_its_own() -> None:
    script = """
import os, sys, warnings
from paxosblock import Client
from paxosblock.errors import DeadlineError, InvalidRequestError
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, from Python 3.12 on
with Client([sys.argv[1]]) as fs:
    with fs.create("/a") as out:
        out.write(b"hello")
    inherited = fs.open("/a")
    child = os.fork()
    with fs.open("/a") as file:
        assert file.read() == b"hello"
    if child == 0:
        try:
            inherited.read()
        except InvalidRequestError as error:
            print(error, flush=True)
        fs.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert inherited.read() == b"hello"
"""
    code, printed = await run_script(script)
    assert (code, printed) == (0, "the client is closed, or belongs to the process before fork\n")


async def test_a_closed_client_says_so() -> None:
    def work(fs: Client, cluster: ShippedCluster) -> None:
        fs.close()
        fs.close()
        with pytest.raises(InvalidRequestError, match="closed"):
            fs.stat("/")

    await using(work)


async def test_a_program_that_neither_flushes_nor_closes_is_told_what_it_lost() -> None:
    script = """
import sys
from paxosblock import Client
fs = Client([sys.argv[1]])
out = fs.create("/a")
out.write(b"hello")
out.hflush()
out.write(b" again")
"""
    code, printed = await run_script(script)
    assert code == 0
    assert "'/a' was never closed: 6 bytes were not flushed" in printed
