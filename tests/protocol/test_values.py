"""A class whose values are made often behaves as the frozen data class that it was."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest

from paxosblock.protocol.values import made_often


@dataclass(frozen=True, slots=True)
class Frozen:
    index: int
    names: tuple[str, ...] = ("a",)


@made_often
@dataclass(frozen=True, slots=True)
class Often:
    index: int
    names: tuple[str, ...] = ("a",)


def test_values_made_often_compare_and_hash_by_their_fields() -> None:
    assert Often(1) == Often(1, ("a",)) != Often(2)
    assert Often(1) != Frozen(1)  # type: ignore[comparison-overlap]  # it must not be equal
    assert hash(Often(1)) == hash(Frozen(1))


def test_a_value_made_often_is_replaced_matched_and_encoded_like_any_other() -> None:
    assert replace(Often(1), index=2) == Often(2)
    match Often(1, ("b",)):
        case Often(index, (name,)):
            assert (index, name) == (1, "b")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Often(3)), type=Often) == Often(3)


def test_a_value_made_often_has_slots_and_takes_no_other_arguments() -> None:
    assert not hasattr(Often(1), "__dict__")
    with pytest.raises(TypeError, match="index"):
        Often()  # type: ignore[call-arg]  # it must not be made
