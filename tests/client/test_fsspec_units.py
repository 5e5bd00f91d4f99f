"""Parts of the fsspec file system that need no cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from paxosblock.client.fsspec.leaving import left_by_exception
from paxosblock.client.fsspec.options import config_of, options_of_url, path_of_url
from paxosblock.errors import ConfigError
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
    ],
)
def test_a_url_is_a_cluster_and_a_path(url: str, options: dict[str, str], path: str) -> None:
    assert options_of_url(url) == options
    assert path_of_url(url) == path


def test_storage_options_are_settings_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_WINDOW", "7")
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_REPLICATION", "5")
    config = config_of(
        {"replication": 2, "durability": "memory", "block_size": "1MiB", "retry_for": "5s"}
    )
    assert (config.replication, config.durability) == (2, Durability.MEMORY)
    assert (config.block_size_bytes, config.retry_for_s) == (1024 * 1024, 5.0)
    assert config.window == 7


def test_what_fsspec_itself_says_about_listings_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_of({"use_listings_cache": False}) == config_of({})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="chunk_size"):
        config_of({"chunk_size": "2MiB", "block_size": "1MiB"})


class Block:
    """A `with` block that notes, when it is left, whether an exception looks to be the reason."""

    def __init__(self, before: BaseException | None = None) -> None:
        self.before = before
        self.seen: bool | None = None

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *_: object) -> None:
        self.seen = left_by_exception(self.before)


def test_a_block_that_ends_well_is_not_left_by_an_exception() -> None:
    with Block() as block:
        pass
    assert block.seen is False


def test_a_block_that_raises_is_left_by_an_exception() -> None:
    block = Block()
    with contextlib.suppress(ZeroDivisionError), block:
        raise ZeroDivisionError
    assert block.seen is True


def test_an_exception_that_is_older_than_the_block_does_not_count() -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError as error:
        with Block(before=error) as block:
            pass
    assert block.seen is False


def test_a_block_that_ends_well_while_an_exception_is_handled_is_not_left_by_it() -> None:
    """The file was opened before: what is written for want of something better must be kept."""
    block = Block()
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        with contextlib.ExitStack() as stack, block:
            stack.callback(lambda: None)
    assert block.seen is False


def test_a_newer_exception_counts_while_an_older_one_is_handled() -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError as error:
        block = Block(before=error)
        with contextlib.suppress(KeyError), block:
            raise KeyError from None
    assert block.seen is True


def test_an_except_clause_is_no_block() -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        assert not left_by_exception(None)


def test_a_generator_that_is_left_by_an_exception_counts() -> None:
    seen = []

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        try:
            yield
        finally:
            seen.append(left_by_exception(None))

    with contextlib.suppress(ZeroDivisionError), block():
        raise ZeroDivisionError
    with block():
        pass
    assert seen == [True, False]
