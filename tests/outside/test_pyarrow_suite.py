"""pyarrow's own tests of a file system, over `PyFileSystem`: all that take any file system."""

from __future__ import annotations

import inspect
import pickle
import posixpath
import uuid
from collections.abc import Callable, Iterator
from types import ModuleType

import pyarrow.fs
import pytest
from pyarrow.tests import test_fs as suite

from paxosblock.client.fsspec import PaxosBlockFileSystem

pickle_with_and_without_subtree_filesystem = suite.pickle_with_and_without_subtree_filesystem
globals().update(
    {
        name: test
        for name, test in vars(suite).items()
        if name.startswith("test_") and "fs" in inspect.signature(test).parameters
    }
)


@pytest.fixture
def fs(fs: PaxosBlockFileSystem) -> pyarrow.fs.FileSystem:
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))


@pytest.fixture
def pathfn(fs: pyarrow.fs.PyFileSystem) -> Iterator[Callable[[str], str]]:
    path = f"/suites/{uuid.uuid4().hex}/"
    fs.create_dir(path)
    yield lambda name: posixpath.join(path, name)
    fs.delete_dir(path)


@pytest.fixture
def pickle_module() -> ModuleType:
    return pickle


@pytest.fixture
def allow_move_dir() -> bool:
    return True


@pytest.fixture
def allow_append_to_file() -> bool:
    return True
