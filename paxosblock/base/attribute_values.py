"""Values of attributes as people write and read them: HDFS's `XAttrCodec`."""

from __future__ import annotations

import binascii
import enum
from typing import Final

_HEX: Final = "0x"
_BASE64: Final = "0s"


class Encoding(enum.StrEnum):
    """The forms in which a value is shown."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"


def encoded(value: bytes, encoding: Encoding | None) -> str:
    """Return a value as it is shown; without a wish as text, if it is some that can be shown."""
    if encoding is Encoding.BASE64:
        return _BASE64 + binascii.b2a_base64(value, newline=False).decode()
    if encoding is Encoding.HEX:
        return _HEX + value.hex()
    text = value.decode(errors="replace")
    if encoding is None and not (text.isprintable() and text.encode() == value):
        return _HEX + value.hex()
    return f'"{text}"'


def decoded(written: str) -> bytes:
    """Return the value that a user wrote: text, perhaps in quotes, or bytes after 0x or 0s.

    Raises:
        ValueError: what follows is not in that encoding.
    """
    if written[:2].lower() == _HEX:
        return binascii.unhexlify(written[2:])
    if written[:2].lower() == _BASE64:
        return binascii.a2b_base64(written[2:], strict_mode=True)
    if len(written) > 1 and written[0] == written[-1] == '"':
        written = written[1:-1]
    return written.encode()
