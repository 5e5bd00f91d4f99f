"""fsspec's own tests of a file system, which decide what its users may expect."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Iterator

import fsspec.tests.abstract as suites
import pytest

from paxosblock.client.fsspec import PaxosBlockFileSystem


class Fixtures(suites.AbstractFixtures):  # type: ignore[misc] # fsspec has no types
    """Answers the suites' questions: the file system is the one of conftest.py."""

    @pytest.fixture
    def fs(self, fs: PaxosBlockFileSystem) -> PaxosBlockFileSystem:
        return fs

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join

    @pytest.fixture
    def fs_path(self, fs: PaxosBlockFileSystem) -> Iterator[str]:
        path = f"/suites/{uuid.uuid4().hex}"
        fs.makedirs(path)
        yield path
        fs.rm(path, recursive=True)


class TestCopy(suites.AbstractCopyTests, Fixtures):  # type: ignore[misc] # fsspec has no types
    """Copies within the cluster."""


class TestGet(suites.AbstractGetTests, Fixtures):  # type: ignore[misc] # fsspec has no types
    """Files and trees to the local disk."""


class TestPut(suites.AbstractPutTests, Fixtures):  # type: ignore[misc] # fsspec has no types
    """Files and trees from the local disk."""


class TestOpen(suites.AbstractOpenTests, Fixtures):  # type: ignore[misc] # fsspec has no types
    """Modes."""


class TestPipe(suites.AbstractPipeTests, Fixtures):  # type: ignore[misc] # fsspec has no types
    """Whole files."""
