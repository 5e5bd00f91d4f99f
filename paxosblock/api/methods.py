"""A control call as a value: its name on the wire and the types of its request and answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from paxosblock.base.units import MIB

Q = TypeVar("Q")
A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A_co]):
    """A CALL frame with this name and a `request` as msgpack; an ANSWER has an `answer`.

    The same over HTTP: `POST /rpc/<name>`, and the body of a 200.
    """

    name: str
    request: type[Q]
    answer: type[A_co]
    any_namenode: bool = False
    """True for a call that any NameNode answers, leader or not, to show what is there."""
    request_bytes_max: int = MIB
    """Most bytes of a request: objects take many times the room of the bytes that make them."""
    waits_s: float = 0.0
    """Seconds that a NameNode which is well may wait before it answers."""


class Done(msgspec.Struct, frozen=True):
    """The answer of a call that has nothing to report."""


class Once(msgspec.Struct, frozen=True):
    """The name of a request, so that it is done once, however often and to whichever NameNode it is
    sent.

    `session` is a name of at most 64 ASCII characters that no other session has. A session has one
    request under way at a time, and `sequence` grows with each. NameNodes remember the latest
    request of a session, with its answer, for at least five minutes.
    """

    session: str
    sequence: int
