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
import hashlib
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
_BODY_BYTES: Final = _BODY.size
_BYTES_MIN: Final = _BODY_BYTES + MAC_BYTES
_BYTES_MAX: Final = _BYTES_MIN + USER_BYTES_MAX
_HASH: Final = "sha256"
_HASH_BLOCK_BYTES: Final = 64


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


class Stamp:
    """The key of one DataNode, ready to sign and to check with.

    What HMAC (RFC 2104) does with the key alone is done once, and copied for each message. In the
    midst of other work that takes 7 us where `hmac.digest`, for which OpenSSL looks the hash up
    each time, takes 16, and a copy of `hmac.new` 12: and each block takes twelve of them.
    """

    __slots__ = ("_inner", "_outer", "id")

    def __init__(self, key: BlockKey) -> None:
        padded = key.key.ljust(_HASH_BLOCK_BYTES, b"\0")
        assert len(padded) == _HASH_BLOCK_BYTES  # `key_of` makes 32 bytes
        self.id = key.id
        self._inner = hashlib.sha256(bytes(each ^ 0x36 for each in padded))
        self._outer = hashlib.sha256(bytes(each ^ 0x5C for each in padded))

    def mac(self, body: bytes) -> bytes:
        """Return the bytes that vouch for others."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(body)
        outer.update(inner.digest())
        return outer.digest()[:MAC_BYTES]


def sign(capability: Capability, stamps: Iterable[Stamp]) -> list[bytes]:
    """Return the bytes of a capability for each of the DataNodes that the `stamps` are of, all made
    of one key."""
    signed: list[bytes] = []
    body = b""
    for stamp in stamps:
        body = body or _packed(capability, stamp.id)
        signed.append(body + stamp.mac(body))
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
    if not _BYTES_MIN <= len(signed) <= _BYTES_MAX:
        raise AccessDeniedError(
            "the request brings no capability, and this DataNode serves none without one"
            " (block_tokens): is the setting on at the NameNodes, and the caller of this version?"
            if not signed
            else f"{len(signed)} bytes are no capability"
        )
    return int.from_bytes(signed[:4], "little")


def check(signed: bytes, stamp: Stamp | None, now_s: float) -> Capability:
    """Return the capability in bytes of a stranger whose `key_id` is known; `stamp` is of the key
    that this DataNode has by that id.

    Raises:
        AccessDeniedError: no NameNode signed this for this DataNode, or it has ended.
    """
    if stamp is None:
        raise AccessDeniedError("the capability was signed with a key that is over or never was")
    body, mac = signed[:-MAC_BYTES], signed[-MAC_BYTES:]
    if not hmac.compare_digest(stamp.mac(body), mac):
        raise AccessDeniedError("no NameNode of this cluster signed the capability for this node")
    _, block, rights, generation, until_s = _BODY.unpack_from(body)
    if until_s <= now_s:
        raise AccessDeniedError(
            f"the capability for block {block} ended {now_s - until_s:.0f} s ago by this node's"
            " clock: a fresh one comes with the block's view, if the clocks are right",
            block=block,
        )
    user = ""
    if len(body) > _BODY_BYTES:  # it may be cut in the midst of a letter
        user = body[_BODY_BYTES:].decode(errors="replace")
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
