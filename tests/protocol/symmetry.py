"""Storages that play the same part may change names: one world stands for all its renamings.

The renamed world with the least disks is explored; ties are broken by the other parts.
"""

from __future__ import annotations

from itertools import permutations
from operator import itemgetter
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from paxosblock.protocol.messages import Grant
from paxosblock.protocol.types import StorageId
from paxosblock.protocol.write import Writer
from tests.protocol.world import Answer, Cell, Config, Letter, Model, World

T = TypeVar("T")
Renaming = tuple[int, ...]
"""Storage `i` takes the place of storage `renaming[i]`."""


def renamings(config: Config) -> tuple[Renaming, ...]:
    """All renamings that map the first config, and the configs to come, to themselves."""
    first = tuple(range(config.members))
    targets = sorted(config.targets)
    return tuple(
        renaming
        for renaming in permutations(range(config.storages))
        if _image(renaming, first) == first
        and sorted(_image(renaming, target) for target in config.targets) == targets
    )


def _image(renaming: Renaming, places: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(renaming[place] for place in places))


class Symmetry:
    """Finds the world that stands for all renamings of a world."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._all = renamings(model.config)
        self._inverse = {r: tuple(r.index(i) for i in range(len(r))) for r in self._all}
        self._moved = [(r, itemgetter(*self._inverse[r])) for r in self._all]
        self._cells: dict[Renaming, dict[Cell[Any], Cell[Any]]] = {r: {} for r in self._all}
        self._mails: dict[Renaming, dict[int, int]] = {r: {} for r in self._all}
        self._order: dict[Cell[Any], int] = {}

    def representative(self, world: World) -> World:
        """The same for two worlds that differ in names only."""
        if len(self._all) == 1:
            return world
        ranks = [self._rank(cell) for cell in world.disks]
        best = _least([(moved(ranks), r) for r, moved in self._moved])
        if len(best) > 1:
            best = _least([(self._mail(r, world.mail), r) for r in best])
        worlds = [self._renamed(renaming, world) for renaming in best]
        return min(worlds, key=self._key) if len(worlds) > 1 else worlds[0]

    def _rank(self, cell: Cell[Any]) -> int:
        return self._order.setdefault(cell, len(self._order))

    def _key(self, world: World) -> tuple[object, ...]:
        cells: tuple[Cell[Any], ...] = (
            world.record,
            *world.writers,
            *world.proposers,
            *world.readers,
            world.backup,
        )
        return tuple(self._rank(cell) for cell in cells)

    def _renamed(self, renaming: Renaming, world: World) -> World:
        if renaming == self._all[0]:
            return world
        return World(
            record=self._cell(renaming, world.record),
            disks=tuple([world.disks[i] for i in self._inverse[renaming]]),
            writers=tuple([self._cell(renaming, c) for c in world.writers]),
            proposers=tuple([self._cell(renaming, c) for c in world.proposers]),
            readers=tuple([self._cell(renaming, c) for c in world.readers]),
            mail=self._mail(renaming, world.mail),
            history=world.history,
            budget=world.budget,
            backup=self._cell(renaming, world.backup),
        )

    def _cell(self, renaming: Renaming, cell: Cell[T]) -> Cell[T]:
        known = self._cells[renaming]
        if cell not in known:
            known[cell] = self._model.cell(rename(self._model, renaming, cell.value))
        return known[cell]

    def _mail(self, renaming: Renaming, mail: int) -> int:
        known = self._mails[renaming]
        if mail not in known:
            known[mail] = _rename_mail(self._model, renaming, mail)
        return known[mail]


def _least(ranked: list[tuple[Any, Renaming]]) -> list[Renaming]:
    """The renamings of the lowest rank."""
    least = min(ranked, key=itemgetter(0))[0]
    return [renaming for rank, renaming in ranked if rank == least]


def _rename_mail(model: Model, renaming: Renaming, mail: int) -> int:
    renamed = 0
    while mail:
        bit = mail & -mail
        mail ^= bit
        renamed |= model.once(_rename_bit, model, renaming, bit)
    return renamed


def _rename_bit(model: Model, renaming: Renaming, bit: int) -> int:
    letter: Letter = model.letters[bit.bit_length() - 1]
    to_writers = isinstance(letter.message, Grant | Answer)
    to = letter.to if to_writers else _image(renaming, letter.to)
    return model.post(rename(model, renaming, letter.message), to)


def rename(model: Model, renaming: Renaming, value: T) -> T:
    """`value` with every storage renamed; tuples that are sets of storages stay sorted."""
    if isinstance(value, str):
        known = value in model.storages
        return (
            cast("T", model.storages[renaming[model.index(StorageId(value))]]) if known else value
        )
    if isinstance(value, tuple):
        parts = [rename(model, renaming, part) for part in value]
        return cast(
            "T", tuple(sorted(parts, key=_storage_first)) if _is_set(parts) else tuple(parts)
        )
    if isinstance(value, Writer):
        return cast("T", _rename_writer(model, renaming, value))
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        changes = {name: rename(model, renaming, getattr(value, name)) for name in fields}
        return replace(value, **changes)
    return value


def _rename_writer(model: Model, renaming: Renaming, writer: Writer) -> Writer:
    renamed = [rename(model, renaming, member) for member in writer.members]
    order = sorted(range(len(renamed)), key=lambda at: renamed[at])
    return replace(
        writer,
        members=tuple(renamed[at] for at in order),
        created=tuple(writer.created[at] for at in order),
        voted=tuple(writer.voted[at] for at in order),
        synced=tuple(writer.synced[at] for at in order),
    )


def _is_set(parts: list[Any]) -> bool:
    """Storages, replies of storages and answers of storages have no order of their own."""
    return bool(parts) and all(_storage_of(part) is not None for part in parts)


def _storage_of(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if isinstance(part, tuple) and part and isinstance(part[0], str):
        return part[0]
    return getattr(part, "storage", None)


def _storage_first(part: Any) -> str:
    return _storage_of(part) or ""
