"""A control call as a value: its name on the wire and the types of its request and answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """`POST /rpc/<name>` with a `request` as msgpack; the body of a 200 is an `answer`."""

    name: str
    request: type[Q]
    answer: type[A]


@dataclass(frozen=True, slots=True)
class Done:
    """The answer of a call that has nothing to tell."""
