"""Chunks that clients encrypt, so that no DataNode can read or change them. No I/O.

To DataNodes such a chunk is one like any other. It is these bytes::

    offset    size  field
         0      12  nonce   random
        12       n  text    the user data, by AES-256-GCM
    12 + n      16  tag

The tag also vouches for the place: the block, the index of the chunk, and the byte of user data in
the block at which it begins. So chunks that were swapped, and a block that was cut or put together
in another way, are found out. Which of two chunks is the later one would not be, if both were once
encrypted for the same place: so no two are (`namenode/catalog/reopening.py`).

A nonce is never used twice by intent: a place may be written again in a later generation, and a
counter of places would then repeat. With random ones a block of 2^32 chunks has a chance of 2^-33.

Each block has a key of its own, made of that of its zone. This module has all arithmetic of
lengths: a file, and an offset in it or in a block, counts user data (plain bytes); a block's record
and a log count what DataNodes hold.

It wants the package `cryptography`, the extra `[encryption]`, when a key is used.
"""

from __future__ import annotations

import hmac
import os
import struct
from typing import TYPE_CHECKING, Final

from paxosblock.base.checksum import Buffer
from paxosblock.errors import ConfigError, CorruptionError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
ADDED_BYTES: Final = NONCE_BYTES + TAG_BYTES
"""Bytes by which an encrypted chunk is longer than its user data."""

_PLACE: Final = struct.Struct("<QIQ")  # block, index, first byte of user data in the block
_OF_BLOCK: Final = struct.Struct("<Q")
_FOR_BLOCK: Final = b"paxosblock block "


def user_bytes(size_bytes: int, chunks: int, added_bytes: int) -> int:
    """Return the bytes of user data in so many `chunks`, which together have `size_bytes`; to each
    of them encryption has added `added_bytes`, or 0."""
    return size_bytes - chunks * added_bytes


def stored_bytes(user: int, chunks: int, added_bytes: int) -> int:
    """Return the bytes that so many chunks with `user` bytes of user data have together."""
    return user + chunks * added_bytes


def key_of_block(zone_key: bytes, block: int) -> bytes:
    """Return the key with which the chunks of a block are encrypted (HKDF's second half)."""
    return hmac.digest(zone_key, _FOR_BLOCK + _OF_BLOCK.pack(block) + b"\x01", "sha256")


def aes(key: bytes) -> AESGCM:
    """Return AES-256-GCM with a key.

    Raises:
        ConfigError: the package for it is not installed.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            "the file is encrypted, which wants the package cryptography: "
            "pip install 'paxosblock[encryption]'"
        ) from error
    return AESGCM(key)


class ChunkCipher:
    """Encrypts and decrypts the chunks of one block."""

    def __init__(self, key: bytes, block: int) -> None:
        """`key` is the block's own. Raises ConfigError as `aes`."""
        self._aes = aes(key)
        self._block = block

    def encrypt(self, index: int, begin: int, data: Buffer) -> bytearray:
        """Return chunk `index`, whose user data are `data`, which begin at byte `begin` of the
        block's."""
        chunk = bytearray(len(data) + ADDED_BYTES)
        chunk[:NONCE_BYTES] = nonce = os.urandom(NONCE_BYTES)
        into = memoryview(chunk)[NONCE_BYTES:]
        self._aes.encrypt_into(nonce, data, _PLACE.pack(self._block, index, begin), into)
        return chunk

    def decrypt_into(self, index: int, begin: int, chunk: memoryview, into: memoryview) -> None:
        """Put the user data of a chunk into `into`, which is as long as these are.

        Raises:
            CorruptionError: it is not what a client encrypted for this place; what `into` holds
                then is no user data.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        place = _PLACE.pack(self._block, index, begin)
        try:
            self._aes.decrypt_into(chunk[:NONCE_BYTES], chunk[NONCE_BYTES:], place, into)
        except InvalidTag:
            raise CorruptionError(
                f"chunk {index} of block {self._block} is not what a client encrypted there",
                block=self._block,
                index=index,
            ) from None
