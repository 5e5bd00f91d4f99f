"""A control call as a value: its name on the wire and the types of its request and answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from paxosblock.base.units import MIB
from paxosblock.errors import InvalidRequestError

Q = TypeVar("Q")
A_co = TypeVar("A_co", covariant=True)

_ENCODER = msgspec.msgpack.Encoder()


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


def encode(message: object) -> bytes:
    """Return the msgpack of a request, or of an answer.

    Raises:
        InvalidRequestError: it cannot be sent: a number of more than 64 bits, or a text that is not
            Unicode, as the name of a local file may be.
    """
    try:
        return _ENCODER.encode(message)
    except OverflowError as error:
        raise InvalidRequestError("a number has more than 64 bits") from error
    except UnicodeEncodeError as error:
        text = error.object.encode(errors="backslashreplace").decode()
        raise InvalidRequestError(f"'{text}': is no valid Unicode text", path=text) from error
