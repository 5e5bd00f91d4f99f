"""`Client` is `AsyncClient` for programs that do not run on asyncio: method by method."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from paxosblock.client.async_client import AsyncClient
from paxosblock.client.block_verbs import AsyncDataNode
from paxosblock.client.blocking.sync import Client, DataNode
from tests.client.make_sync import TARGET, made


def test_the_file_is_what_its_sources_make() -> None:
    assert TARGET.read_text(encoding="utf-8") == made(), "run: make generate"


def public(kind: type) -> Iterator[str]:
    return (name for name in dir(kind) if not name.startswith("_"))


@pytest.mark.parametrize(("there", "here"), [(AsyncClient, Client), (AsyncDataNode, DataNode)])
def test_each_method_has_its_namesake_with_the_same_arguments(there: type, here: type) -> None:
    assert set(public(there)) <= set(dir(here))
    for name in public(there):
        ours, theirs = getattr(here, name), getattr(there, name)
        if not isinstance(theirs, property):
            assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
        assert inspect.getdoc(ours)
