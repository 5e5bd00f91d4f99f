"""Streams of a directory know by the change feed what a listing shows, and list it once."""

from __future__ import annotations

import random
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from paxosblock import Client, LocalCluster
from paxosblock.api.transaction import Delete, Rename
from paxosblock.client.names.url import parse_url
from paxosblock.client.spark.listing import ListedFile, base_of, find
from paxosblock.client.spark.new_files import NewFiles
from paxosblock.errors import NotFoundError, Outcome, PaxosBlockError
from tests.secure import url_of
from tests.spark.test_streaming_source import put, reader_of

STEPS = 60
LOOK_EVERY = 4
"""Steps between two looks, on average."""


def seen(files: dict[str, ListedFile]) -> dict[str, tuple[object, ...]]:
    """Return what a stream goes by."""
    return {
        path: (
            each.status.file_id,
            each.linked,
            each.status.open,
            each.status.size,
            each.status.truncations,
        )
        for path, each in files.items()
    }


class Life:
    """Random changes of a small tree at `top`, some of them out of it and back."""

    def __init__(self, fs: Client, top: str, seed: int) -> None:
        self.fs, self.top = fs, top
        self.rng = random.Random(seed)

    def any_directory(self) -> str:
        """Return one at `top`, below it, hidden there, or elsewhere."""
        below = self.rng.choice(["", "/a", "/b", "/a/c", "/_temporary"])
        return f"{self.rng.choice([self.top] * 3 + [f'{self.top}-elsewhere'])}{below}"

    def any_file(self) -> str:
        return f"{self.any_directory()}/{self.rng.choice('xyz')}.{self.rng.choice(['txt', 'log'])}"

    def step(self) -> None:
        """Change something, if that can be done as things are."""
        changes: list[Callable[[], object]] = [
            lambda: put(self.fs, self.any_file(), "1234"),
            lambda: put(self.fs, self.any_file(), "5"),
            lambda: self.append(self.any_file()),
            lambda: self.fs.truncate(self.any_file(), 1),
            lambda: self.fs.rename(self.any_file(), self.any_file(), overwrite=True),
            lambda: self.fs.rename(self.any_directory(), self.any_directory()),
            lambda: self.fs.delete(self.any_file()),
            lambda: self.fs.delete(self.any_directory(), recursive=True),
            lambda: self.fs.set_permission(self.any_directory(), self.rng.choice([0o700, 0o755])),
            lambda: self.fs.set_quota(self.any_directory(), names=self.rng.choice([-1, 1000])),
            self.swap,
        ]
        try:
            self.rng.choice(changes)()
        except PaxosBlockError as refused:
            if refused.outcome is not Outcome.NEVER:
                raise

    def append(self, path: str) -> None:
        with self.fs.append(path) as out:
            out.write(b"more")

    def swap(self) -> None:
        """One directory takes the place of another in one step."""
        target, source = self.any_directory(), self.any_directory()
        self.fs.transact([Delete(target, recursive=True), Rename(source, target)])


@pytest.mark.parametrize("pattern", ["", "/*/*.txt", "/**/x.*"])
@pytest.mark.parametrize("seed", range(2))
def test_the_feed_tells_the_same_as_a_listing_whatever_happens(
    fs: Client, folder: str, seed: int, pattern: str
) -> None:
    top = parse_url(folder).path
    fs.mkdirs(top)
    life, path = Life(fs, top, seed), f"{top}{pattern}"
    new = NewFiles(fs, path)
    for _ in range(STEPS):
        life.step()
        if life.rng.randrange(LOOK_EVERY) == 0:
            if not fs.exists(base_of(path)[0]):
                fs.mkdirs(top)
            found = new.now()
            listed = find(fs, path)
            assert seen(dict(found.files)) == seen(dict(listed.files))


def listings(cluster: LocalCluster) -> int:
    """Return how many lists of directories the NameNode has answered."""
    with urllib.request.urlopen(url_of(cluster.namenodes[0].address, "metrics")) as page:
        text = page.read().decode()
    found = re.search(r'namenode_call_seconds_count\{[^}]*"list"[^}]*\} (\d+)', text)
    return int(found[1]) if found else 0


def lines_read(reader: Any, at: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Read one micro-batch."""
    end = reader.latestOffset(at, ReadAllAvailable())
    lines = [
        line
        for part in reader.partitions(at, end)
        for batch in reader.read(part)
        for line in batch[0].to_pylist()
    ]
    reader.commit(end)
    return lines, end


def test_a_directory_is_listed_once_and_by_a_stream_that_starts_again_not_at_all(
    fs: Client, cluster: LocalCluster, folder: str
) -> None:
    path = parse_url(folder).path
    put(fs, f"{path}/old", "old\n")
    reader, again = reader_of(folder), reader_of(folder)  # its schema takes a listing, too
    lines, at = lines_read(reader, reader.initialOffset())
    before = listings(cluster)
    for number in range(5):
        put(fs, f"{path}/{number}", f"{number}\n")
        more, at = lines_read(reader, at)
        lines += more
    reader.stop()
    put(fs, f"{path}/while-down", "down\n")
    lines += lines_read(again, at)[0]
    again.stop()
    assert lines == ["old", *"01234", "down"]
    assert listings(cluster) == before


def test_a_directory_is_listed_again_when_its_changes_are_no_longer_known(
    fs: Client, cluster: LocalCluster, folder: str
) -> None:
    """A NameNode keeps them in memory; the only one of the cluster starts again."""
    path = parse_url(folder).path
    put(fs, f"{path}/a", "a\n")
    reader = reader_of(folder)
    lines, at = lines_read(reader, reader.initialOffset())
    put(fs, f"{path}/0", "0\n")
    cluster.namenodes[0].kill()
    cluster.namenodes[0].start()
    put(fs, f"{path}/b", "b\n")
    lines += lines_read(reader, at)[0]
    reader.stop()
    assert lines == ["a", "0", "b"]


def test_a_directory_that_came_with_its_files_is_not_missed(fs: Client, folder: str) -> None:
    path = parse_url(folder).path
    put(fs, f"{path}-elsewhere/day/x", "x\n")
    put(fs, f"{path}/a", "a\n")
    reader = reader_of(folder)
    lines, at = lines_read(reader, reader.initialOffset())
    fs.rename(f"{path}-elsewhere/day", f"{path}/day")
    more, at = lines_read(reader, at)
    fs.rename(f"{path}/day", f"{path}/_hidden")
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    fs.delete(path, recursive=True)
    with pytest.raises(NotFoundError):
        reader.latestOffset(at, ReadAllAvailable())
    reader.stop()
    assert lines + more == ["a", "x"]
