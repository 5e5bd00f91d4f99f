"""Parts of the fsspec file system that need no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.transaction import Operation
from paxosblock.base.checksum import Buffer
from paxosblock.client.append_mode import Addition
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.client.fsspec.dropping import error_since
from paxosblock.client.fsspec.info import ukey_of
from paxosblock.client.fsspec.storage_options import config_of, options_of_url, path_of_url
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import ConfigError, UnavailableError
from paxosblock.protocol.types import Durability


@pytest.mark.parametrize(
    ("url", "options", "path"),
    [
        ("paxosblock://a:1/x/y", {"namenodes": "a:1"}, "/x/y"),
        ("paxosblock://a,b:7/x/", {"namenodes": "a:9870,b:7"}, "/x"),
        ("paxosblock://a:1", {"namenodes": "a:1"}, "/"),
        ("paxosblock:///x", {}, "/x"),
        ("paxosblock://", {}, "/"),
        ("/x/y/", {}, "/x/y"),
        ("x/y", {}, "/x/y"),
        ("", {}, "/"),
        ("paxosblock://[::1]:5/x*[ab]?", {"namenodes": "[::1]:5"}, "/x*[ab]?"),
        ("paxosblock://a:1/x/?at=@7", {"namenodes": "a:1"}, "/.snapshot/@7/x"),
        ("paxosblock:///x?at=@7", {}, "/.snapshot/@7/x"),
        ("/x?at=@7", {}, "/x?at=@7"),
    ],
)
def test_a_url_is_a_cluster_and_a_path(url: str, options: dict[str, str], path: str) -> None:
    assert options_of_url(url) == options
    assert path_of_url(url) == path


def test_storage_options_are_settings_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_WINDOW", "7")
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_REPLICATION", "5")
    config = config_of(
        {"replication": 2, "durability": "memory", "block_size": "1MiB", "retry_for_s": "5s"}
    )
    assert (config.replication, config.durability) == (2, Durability.MEMORY)
    assert (config.block_size, config.retry_for_s) == (1024 * 1024, 5.0)
    assert config.window == 7


def test_file_systems_are_equal_by_cluster_and_options_however_the_cluster_was_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", "a:1,b:2")
    named = PaxosBlockFileSystem(("a:1", "b:2"))
    for same in (PaxosBlockFileSystem(), pickle.loads(pickle.dumps(named))):
        assert same == named
        assert hash(same) == hash(named)
    assert PaxosBlockFileSystem("a:1") != named
    assert PaxosBlockFileSystem("a:1,b:2", replication=2) != named


def test_what_fsspec_itself_says_about_listings_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_of({"use_listings_cache": False}) == config_of({})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="chunk_size"):
        config_of({"chunk_size": "2MiB", "block_size": "1MiB"})


def test_without_an_exception_nothing_is_under_way() -> None:
    assert error_since(None) is None


def test_an_exception_that_is_handled_is_under_way_also_at_the_end_of_anybodys_block() -> None:
    """`finally` and `except` clauses, an `__exit__`, and a generator that is thrown into."""
    seen: list[BaseException | None] = []

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        try:
            yield
        finally:
            seen.append(error_since(None))

    error = ZeroDivisionError()
    with contextlib.suppress(ZeroDivisionError), contextlib.ExitStack() as stack, block():
        stack.callback(lambda: seen.append(error_since(None)))
        raise error
    try:
        raise error
    except ZeroDivisionError:
        seen.append(error_since(None))
    assert seen == [error] * 3


def test_what_was_being_handled_when_the_file_was_opened_is_older_however_deep() -> None:
    older, opened, newer = ZeroDivisionError(), KeyError(), ValueError()
    seen: list[BaseException | None] = []
    try:
        raise older
    except ZeroDivisionError:
        try:
            raise opened from None
        except KeyError:
            seen += [error_since(before=opened), error_since(before=older)]
        seen.append(error_since(before=opened))
        try:
            raise newer
        except ValueError:
            seen.append(error_since(before=opened))
    assert seen == [None, opened, None, newer]


def test_the_key_of_a_file_that_was_cut_and_is_as_long_again_is_another_one() -> None:
    """Also within the same millisecond."""
    before = FileStatus("/f", Kind.FILE, 1, 2, 3, 4, Durability.DISK, False, 5, 6, "", "", 0o644)
    assert ukey_of(before) == ukey_of(replace(before))
    assert ukey_of(before) != ukey_of(replace(before, truncations=1))


async def test_what_a_failed_write_left_goes_first_when_it_is_tried_again() -> None:
    """The hidden file takes a part, and refuses the rest once."""

    class Hidden(AsyncFileWriter):
        """A file whose cluster is away for a moment."""

        def __init__(self) -> None:
            self.taken = bytearray()
            self.away = True

        def __del__(self) -> None:
            """It was never open."""

        def tell(self) -> int:
            return len(self.taken)

        async def write(self, data: Buffer) -> int:
            size = len(data)
            self.taken += bytes(data)[: 3 if self.away else size]
            if self.away:
                self.away = False
                raise UnavailableError("nobody there")
            return size

        async def close(self, *, then: Sequence[Operation] = ()) -> None:
            """All of it is there."""

    async def hide() -> AsyncFileWriter:
        return hidden

    hidden = Hidden()
    addition = Addition(STATUS, hide, hide, chunk_size=8)
    assert (await addition.write(b"0123"), await addition.write(b"4567")) == (4, 4)
    assert hidden.taken == b""
    with pytest.raises(UnavailableError):
        await addition.write(b"not taken")
    assert await addition.write(b"ab") == 2
    await addition.close()
    assert bytes(hidden.taken) == b"01234567ab"
    assert (addition.tell(), addition.closed) == (10, True)


async def test_a_hidden_file_that_is_made_while_its_writer_gives_up_is_given_up_too() -> None:
    aborted, asked, answered = [], asyncio.Event(), asyncio.Event()

    class Hidden(AsyncFileWriter):
        """A file that notes its end."""

        def __init__(self) -> None:
            """It has nothing."""

        def __del__(self) -> None:
            """It was never open."""

        async def abort(self) -> None:
            aborted.append(self)

    async def hide() -> AsyncFileWriter:
        asked.set()
        await answered.wait()
        return Hidden()

    addition = Addition(STATUS, hide, hide, chunk_size=8)
    writing = asyncio.create_task(addition.write(b"more than a chunk"))
    await asked.wait()
    writing.cancel()
    giving_up = asyncio.create_task(addition.abort())
    await asyncio.gather(writing, return_exceptions=True)
    answered.set()
    await giving_up
    assert aborted == [addition.hidden]


STATUS = FileStatus("/f", Kind.FILE, 1, 2, 3, 4096, Durability.DISK, False, 5, 6, "", "", 0o644)
