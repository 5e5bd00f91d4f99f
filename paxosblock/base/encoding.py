"""Structs as bytes, and back. Several threads at once may be the first to use a decoder."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

from paxosblock.errors import InvalidRequestError

T = TypeVar("T")

_BUILDING: Final = Lock()
"""msgspec looks at a struct when it first decodes one, and runs Python code in the midst of it. A
second thread that decodes the same struct then finds it half described, and the process ends with
a segmentation fault (seen with msgspec 0.22). So all decoders are built here, one at a time."""

MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of a decoder that mean bytes of a peer: text that is none, and lists in lists without
end, are errors of their own."""

_ENCODER = msgspec.msgpack.Encoder()
_msgpack: dict[Any, Any] = {}
_json: dict[Any, Any] = {}


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


def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Return the decoder of the msgpack of a `kind`."""
    found: msgspec.msgpack.Decoder[T] | None = _msgpack.get(kind)
    return found or _build(_msgpack, msgspec.msgpack.Decoder, kind)


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of the JSON of a `kind`."""
    found: msgspec.json.Decoder[T] | None = _json.get(kind)
    return found or _build(_json, msgspec.json.Decoder, kind)


def _build(decoders: dict[Any, Any], build: Any, kind: Any) -> Any:
    with _BUILDING:
        decoder = decoders[kind] = build(kind)
    return decoder
