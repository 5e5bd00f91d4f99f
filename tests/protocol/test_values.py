"""Messages and states of the protocol are values: none can change, and equal ones are one."""

from __future__ import annotations

import importlib
import pkgutil

import msgspec
import pytest

from paxosblock import protocol
from paxosblock.protocol.messages import Vote
from tests.protocol.build import BLOCK, A, chunk, gs, last_vote, replica


def test_every_value_of_the_protocol_is_frozen_and_hashable() -> None:
    modules = [
        importlib.import_module(f"{protocol.__name__}.{found.name}")
        for found in pkgutil.iter_modules(protocol.__path__)
    ]
    values = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }
    assert len(values) > 30
    for value in values - {msgspec.Struct}:
        assert value.__struct_config__.frozen, f"{value} can be changed"
        assert not value.__struct_config__.gc, f"{value} is visited by every garbage collection"


def test_a_value_refuses_to_be_changed() -> None:
    for value in (
        replica(2),
        last_vote(A, 2),
        chunk(0),
        Vote(BLOCK, gs(0), chunk(0).index, A, True),
    ):
        assert hash(value) == hash(msgspec.structs.replace(value))
        with pytest.raises(AttributeError, match="immutable"):
            setattr(value, value.__struct_fields__[0], 1)
