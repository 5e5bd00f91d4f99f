"""Ctrl-C in the thread that uses a `Client`, at every moment at which Python can raise it.

CPython looks for signals after a call, at the start of a function, and when a generator goes on
(3.11: `CALL`, `RESUME`). `Interrupted` raises KeyboardInterrupt at the n-th of these moments in the
synchronous code, and tests repeat their work for n = 1, 2, 3, ... until none is left.
"""

from __future__ import annotations

import asyncio
import dis
import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Self

import paxosblock.client.blocking.loop_thread
import paxosblock.client.blocking.sync
import paxosblock.client.blocking.sync_base
import paxosblock.client.blocking.sync_files
from paxosblock.base.units import KIB
from paxosblock.client.blocking.sync import Client, FileWriter
from tests.client.shipped import shipped_cluster

CODE: Final = {
    threading.__file__,  # what we call there must stand it, too
    paxosblock.client.blocking.loop_thread.__file__,
    paxosblock.client.blocking.sync.__file__,
    paxosblock.client.blocking.sync_base.__file__,
    paxosblock.client.blocking.sync_files.__file__,
}


@functools.cache
def moments_of(code: CodeType) -> frozenset[int]:
    """The instructions before which CPython may run the handler of a signal."""
    steps = list(dis.get_instructions(code))
    pairs = itertools.pairwise(steps)
    return frozenset(
        after.offset for before, after in pairs if before.opname.startswith(("CALL", "RESUME"))
    )


class Interrupted:
    """Raise KeyboardInterrupt in this thread at the n-th moment within `with`, and swallow it."""

    def __init__(self, at: int) -> None:
        self._left = at

    @property
    def happened(self) -> bool:
        """True if there were that many moments."""
        return self._left <= 0

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        sys.settrace(None)
        return isinstance(error, KeyboardInterrupt)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in CODE or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in moments_of(frame.f_code):
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self._trace


def interrupted_anywhere() -> Iterator[Interrupted]:
    """One `Interrupted` for each moment of what the loop's body does with it."""
    at, interrupted = 0, Interrupted(0)
    while interrupted.happened:
        at += 1
        interrupted = Interrupted(at)
        yield interrupted
    assert at > 10, "something was interrupted"


async def using(work: Callable[[Client], None]) -> None:
    """Run `work` with a synchronous client on a thread of its own, whose loop must end."""

    def run(address: str) -> None:
        with Client([address]) as client:
            work(client)

    async with shipped_cluster(1) as (cluster, _):
        await asyncio.wait_for(asyncio.to_thread(run, cluster.address), 100)


def write_all(out: FileWriter, data: bytes | bytearray, sizes: tuple[int, ...]) -> None:
    """Write what is missing, as a program does that was interrupted and goes on."""
    end = 0
    for size in sizes:
        end += size
        if out.tell() < end:
            out.write(data[out.tell() : end])


def write_interrupted(
    fs: Client, data: bytes | bytearray, sizes: tuple[int, ...], interrupted: Interrupted
) -> int:
    """Write a file, go on after the interrupt; what `hflush` says is its length."""
    with fs.create("/a", chunk_size=KIB, overwrite=True) as out:
        with interrupted:
            write_all(out, data, sizes)
            out.hflush()
        write_all(out, data, sizes)
        return out.hflush().size


async def test_an_interrupted_write_is_in_the_file_once_as_far_as_tell_says() -> None:
    sizes = (300, 900, 1024, 200, 5000, 10)
    data = os.urandom(sum(sizes))

    def work(fs: Client) -> None:
        for interrupted in interrupted_anywhere():
            assert write_interrupted(fs, data, sizes, interrupted) == len(data)
            with fs.open("/a") as file:
                assert file.read() == data

    await using(work)


async def test_an_interrupted_write_of_what_may_change_is_in_the_file_once() -> None:
    sizes = (100, 3000)
    data = bytearray(os.urandom(sum(sizes)))

    def work(fs: Client) -> None:
        for interrupted in interrupted_anywhere():
            assert write_interrupted(fs, data, sizes, interrupted) == len(data)
            with fs.open("/a") as file:
                assert file.read() == data

    await using(work)


async def test_of_a_small_write_that_is_interrupted_all_is_taken_or_nothing() -> None:
    def work(fs: Client) -> None:
        for interrupted in interrupted_anywhere():
            with fs.create("/a", chunk_size=KIB, overwrite=True) as out:
                out.write(bytes(700))
                with interrupted:
                    out.write(bytes(KIB))
                assert out.tell() in (700, 700 + KIB)

    await using(work)


async def test_an_interrupted_close_loses_nothing_that_was_flushed_and_can_be_repeated() -> None:
    data = os.urandom(1500)

    def work(fs: Client) -> None:
        for interrupted in interrupted_anywhere():
            out = fs.create("/a", chunk_size=KIB, overwrite=True)
            out.write(data)
            out.hflush()
            with interrupted:
                out.close()
            out.close()
            # A close that was cancelled on its way leaves the file to its lease, flushed as it is.
            with fs.open("/a") as file:
                assert file.read() == data

    await using(work)


async def test_after_an_interrupted_read_the_same_bytes_are_read_again() -> None:
    data = os.urandom(5 * KIB)

    def work(fs: Client) -> None:
        with fs.create("/a", chunk_size=KIB) as out:
            out.write(data)
        for interrupted in interrupted_anywhere():
            into = bytearray(3 * KIB)
            with fs.open("/a") as file:
                with interrupted:
                    file.seek(KIB)
                    assert file.readinto(into) == len(into)
                if interrupted.happened:
                    assert file.tell() in (0, KIB, 4 * KIB)
                file.seek(KIB)
                assert file.readinto(into) == len(into)
            assert into == data[KIB : 4 * KIB]

    await using(work)


async def test_a_client_whose_follower_is_interrupted_goes_on() -> None:
    def work(fs: Client) -> None:
        with fs.create("/a") as out:
            out.write(b"hello")
            out.hflush()
            for interrupted in interrupted_anywhere():
                tail = fs.follow("/a")
                with interrupted:
                    assert next(tail) == b"hello"
                    tail.close()  # type: ignore[attr-defined]  # it is a generator
                del tail
                with fs.open("/a") as file:
                    assert file.read() == b"hello"

    await using(work)


async def test_an_interrupted_close_of_a_client_can_be_repeated_and_ends_its_thread() -> None:
    def work(address: str) -> None:
        for interrupted in interrupted_anywhere():
            fs = Client([address])
            fs.create("/a", overwrite=True).close()
            with interrupted:
                fs.close()
            fs.close()
            assert not fs._background._thread.is_alive()

    others = {thread for thread in threading.enumerate() if thread.name == "paxosblock-client"}
    async with shipped_cluster(1) as (cluster, _):
        await asyncio.wait_for(asyncio.to_thread(work, cluster.address), 100)
    left = {thread for thread in threading.enumerate() if thread.name == "paxosblock-client"}
    assert left <= others
