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
from collections.abc import Iterable
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


class Signed(msgspec.Struct, frozen=True):
    """A message that brings a `capability`, which its `repr` leaves out: errors and logs tell no
    secret."""

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name != "capability")
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({fields})"


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


def sign(capability: Capability, keys: Iterable[BlockKey]) -> list[bytes]:
    """Return the bytes of a capability for each of the DataNodes that `keys` are of (`key_of`), all
    made of one key."""
    signed: list[bytes] = []
    body = b""
    for key in keys:
        body = body or _packed(capability, key.id)
        signed.append(body + hmac.digest(key.key, body, _HASH)[:MAC_BYTES])
    return signed


def _packed(capability: Capability, key: int) -> bytes:
    body = _BODY.pack(
        key, capability.block, capability.rights, capability.generation, capability.until_s
    )
    return body + capability.user.encode()[:USER_BYTES_MAX] if capability.user else body


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


def check(signed: bytes, key: bytes | None, now_s: float) -> Capability:
    """Return the capability in bytes of a stranger whose `key_id` is known; `key` is the one that
    this DataNode has by that id.

    Raises:
        AccessDeniedError: no NameNode signed this for this DataNode, or it has ended.
    """
    if key is None:
        raise AccessDeniedError("the capability was signed with a key that is over or never was")
    body, mac = signed[:-MAC_BYTES], signed[-MAC_BYTES:]
    if not hmac.compare_digest(hmac.digest(key, body, _HASH)[:MAC_BYTES], mac):
        raise AccessDeniedError("no NameNode of this cluster signed the capability for this node")
    _, block, rights, generation, until_s = _BODY.unpack_from(body)
    if until_s <= now_s:
        raise AccessDeniedError(
            f"the capability for block {block} ended {now_s - until_s:.0f} s ago by this node's"
            " clock: a fresh one comes with the block's view, if the clocks are right",
            block=block,
        )
    user = ""
    if len(body) > _BODY.size:  # it may be cut in the midst of a letter
        user = body[_BODY.size :].decode(errors="replace")
    return Capability(block, rights, generation, until_s, user)


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
