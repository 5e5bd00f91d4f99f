"""Questions to a node, as bytes: one that cannot be written down is the asker's mistake."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import msgspec
import pytest

import paxosblock.api
from paxosblock.api.datanode import Envelope
from paxosblock.api.methods import Method
from paxosblock.api.namenode import BlockRequest, PathRequest
from paxosblock.base.encoding import encode
from paxosblock.errors import InvalidRequestError
from paxosblock.net.wire import MessageTable
from paxosblock.protocol.messages import Read
from paxosblock.protocol.types import BlockId, StorageId

TOO_LARGE = BlockId(1 << 64)


def test_a_request_is_its_fields_as_msgpack() -> None:
    assert msgspec.msgpack.decode(encode(PathRequest("/a"))) == {"path": "/a"}


def test_a_number_that_no_node_knows_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="more than 64 bits"):
        encode(BlockRequest(TOO_LARGE))
    with pytest.raises(InvalidRequestError, match="more than 64 bits"):
        MessageTable((Envelope,)).encode(Envelope(StorageId("S"), Read(TOO_LARGE)))


def test_the_name_of_a_local_file_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        encode(PathRequest("/\udcff"))  # as os.fsdecode gives the name with the byte 0xff
    assert str(caught.value) == r"'/\udcff': is no valid Unicode text"
    assert caught.value.details == {"path": r"/\udcff"}


def test_what_travels_are_structs() -> None:
    """To make, to read and to import they take a fraction of what data classes do; a program that
    is to start fast has a hundred of them to import. `msgspec.structs.replace` changes one."""
    modules = pkgutil.iter_modules(paxosblock.api.__path__, "paxosblock.api.")
    found = [vars(importlib.import_module(each.name)).values() for each in modules]
    kinds = {each for kinds in found for each in kinds if isinstance(each, type)}
    ours = {each for each in kinds if each.__module__.startswith("paxosblock.api.")}
    assert {each for each in ours if dataclasses.is_dataclass(each)} == {Method}
