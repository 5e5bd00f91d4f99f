"""Capabilities, which a NameNode signs and a DataNode checks. No I/O; clocks are arguments.

One says what its holder may do with one block at one DataNode, until when. It is these bytes,
little-endian, then the first 16 of their HMAC-SHA256::

    offset  size  field
         0     4  key          id of the key it was signed with
         4     8  block
        12     1  rights       Right
        13     8  generation   of the config that its holder may write in
        21     4  until        seconds since 1970
        25        user         UTF-8; "" if there are no users

The key is the DataNode's own: the HMAC of its id with a key that all NameNodes have and replace
(`namenode/catalog/block_keys.py`). So a DataNode that was broken into can sign for itself only.
"""

from __future__ import annotations

import enum
import hmac
import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from paxosblock.errors import AccessDeniedError
from paxosblock.protocol.types import BlockId, Generation

MAC_BYTES: Final = 16
USER_BYTES_MAX: Final = 255
_BODY: Final = struct.Struct("<IQBQI")
_HASH: Final = "sha256"


class Right(enum.IntFlag):
    """The bits of `rights`."""

    NONE = 0
    READ = 1
    """Ask for the state and the bytes of the replica."""
    WRITE = 2
    """Send chunks in the one generation."""
    CREATE = 4
    """Make the empty replica of a new block."""
    DECIDE = 8
    """Send what only a NameNode sends: promises, recoveries, finalizations, deletions."""


class BlockKey(msgspec.Struct, frozen=True, array_like=True):
    """A key to sign with, or to check with; later ones have greater ids."""

    id: int
    key: bytes

    def __repr__(self) -> str:
        return f"<BlockKey {self.id}>"  # errors and logs tell no secret


class Capability(msgspec.Struct, frozen=True, gc=False):
    """The fields of a capability. `rights` are bits of `Right`, as a plain number: to combine those
    of an enum costs more than the signature."""

    block: BlockId
    rights: int
    generation: Generation
    until_s: int
    user: str = ""


def key_of(key: BlockKey, node: str) -> BlockKey:
    """Return the key of the DataNode with the id `node`."""
    return BlockKey(key.id, hmac.digest(key.key, node.encode(), _HASH))


def sign(capability: Capability, key: BlockKey) -> bytes:
    """Return the bytes of a capability for the DataNode that `key` is of (`key_of`)."""
    body = _BODY.pack(
        key.id,
        capability.block,
        capability.rights,
        capability.generation,
        capability.until_s,
    )
    if capability.user:
        body += capability.user.encode()[:USER_BYTES_MAX]
    return body + hmac.digest(key.key, body, _HASH)[:MAC_BYTES]


def key_id(signed: bytes) -> int:
    """Return the id of the key with which bytes were signed, as they say.

    Raises:
        AccessDeniedError: they are no capability.
    """
    if not _BODY.size + MAC_BYTES <= len(signed) <= _BODY.size + USER_BYTES_MAX + MAC_BYTES:
        raise AccessDeniedError(
            "the request brings no capability, and this DataNode serves none without one"
            " (block_tokens): is the setting on at the NameNodes, and the caller of this version?"
            if not signed
            else f"{len(signed)} bytes are no capability"
        )
    return int.from_bytes(signed[:4], "little")


def check(signed: bytes, keys: Mapping[int, bytes], now_s: float) -> Capability:
    """Return the capability in bytes of a stranger; `keys` are those of this DataNode, by id.

    Raises:
        AccessDeniedError: no NameNode signed this for this DataNode with one of the keys, or it
            has ended.
    """
    key = keys.get(key_id(signed))
    body, mac = signed[:-MAC_BYTES], signed[-MAC_BYTES:]
    if key is None:
        raise AccessDeniedError("the capability was signed with a key that is over or never was")
    if not hmac.compare_digest(hmac.digest(key, body, _HASH)[:MAC_BYTES], mac):
        raise AccessDeniedError("no NameNode of this cluster signed the capability for this node")
    _, block, rights, generation, until_s = _BODY.unpack_from(body)
    if until_s <= now_s:
        raise AccessDeniedError(
            f"the capability for block {block} ended {now_s - until_s:.0f} s ago by this node's"
            " clock: a fresh one comes with the block's view, if the clocks are right",
            block=block,
        )
    user = body[_BODY.size :].decode(errors="replace")  # it may be cut in the midst of a letter
    return Capability(BlockId(block), rights, Generation(generation), until_s, user)


def allow(capability: Capability, block: BlockId, rights: int) -> None:
    """Check that a capability is for this block, and for all of these rights.

    Raises:
        AccessDeniedError: it is not.
    """
    if capability.block != block:
        raise AccessDeniedError(
            f"block {block}: the capability is for block {capability.block}", block=block
        )
    if rights & ~capability.rights:
        raise AccessDeniedError(
            f"block {block}: the capability allows {_named(capability.rights)}, not"
            f" {_named(rights)}",
            block=block,
        )


def _named(rights: int) -> str:
    return " and ".join(each.name.lower() for each in Right if each & rights and each.name)
