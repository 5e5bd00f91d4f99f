"""`Client` is `AsyncClient` for programs that do not run on asyncio: method by method."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from paxosblock.client.async_client import AsyncClient
from paxosblock.client.block_verbs import AsyncBlockVerbs
from paxosblock.client.blocking.sync import BlockVerbs, Client, DataNode, FileReader, FileWriter
from paxosblock.client.datanode_verbs import AsyncDataNode
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.writing.file_writer import AsyncFileWriter
from tests.client.make_sync import CLASSES, TARGET, made

BOTH = {
    "Client": (AsyncClient, Client),
    "BlockVerbs": (AsyncBlockVerbs, BlockVerbs),
    "DataNode": (AsyncDataNode, DataNode),
    "FileReader": (AsyncFileReader, FileReader),
    "FileWriter": (AsyncFileWriter, FileWriter),
}


def test_the_file_is_what_its_sources_make() -> None:
    assert TARGET.read_text(encoding="utf-8") == made(), "run: make generate"


def public(kind: type) -> Iterator[str]:
    return (name for name in dir(kind) if not name.startswith("_"))


@pytest.mark.parametrize("made", [made.name for made in CLASSES])
def test_each_method_has_its_namesake_with_the_same_arguments(made: str) -> None:
    there, here = BOTH[made]
    assert set(public(there)) <= set(dir(here))
    for name in public(there):
        ours, theirs = getattr(here, name), getattr(there, name)
        assert inspect.getdoc(ours) or name == "closed", "which every file of Python has"
        if isinstance(theirs, property):
            continue
        taken, wanted = (inspect.signature(each).parameters for each in (ours, theirs))
        if ours.__module__ == here.__module__:
            assert taken == wanted
        else:  # of a base, with the types that Python's files have
            assert list(taken) == list(wanted)
