"""A capability is good for the block, the rights, the time and the node it names."""

from __future__ import annotations

import hmac
from random import Random

import msgspec
import pytest

from paxosblock.api import datanode, namenode
from paxosblock.api.capability import (
    MAC_BYTES,
    BlockKey,
    Capability,
    Right,
    Stamp,
    allow,
    check,
    key_id,
    key_of,
    sign,
)
from paxosblock.errors import AccessDeniedError
from paxosblock.protocol.types import BlockId, Generation

NOW_S = 1_800_000_000.0
SHARED = BlockKey(5, b"shared by NameNodes alone")
OWN = key_of(SHARED, "node-1")


def signed_with(key: BlockKey, capability: Capability) -> bytes:
    (signed,) = sign(capability, (Stamp(key),))
    return signed


WRITE = int(Right.READ | Right.WRITE)


def checked(signed: bytes, now_s: float = NOW_S) -> Capability:
    """The capability, at a DataNode that has this one key."""
    return check(signed, Stamp(OWN) if key_id(signed) == OWN.id else None, now_s)


def capability(*, until_s: int = int(NOW_S) + 60, user: str = "") -> Capability:
    return Capability(BlockId((1 << 52) + 7), WRITE, Generation(1 << 40), until_s, user)


@pytest.mark.parametrize("user", ["", "me", "ü" * 300])
def test_what_was_signed_comes_back(user: str) -> None:
    found = checked(signed_with(OWN, capability(user=user)))
    whole = user.encode()[:255].decode(errors="replace")
    assert found == capability(user=whole)


def test_it_is_short() -> None:
    assert len(signed_with(OWN, capability())) == 41


@pytest.mark.parametrize("key_bytes", [0, 1, 32, 63, 64])
def test_what_is_signed_with_a_stamp_is_the_hmac_of_the_key(key_bytes: int) -> None:
    random = Random(key_bytes)
    key = BlockKey(5, random.randbytes(key_bytes))
    stamp = Stamp(key)
    for length in (0, 25, 280, 25):  # the same once more: nothing of the others stays
        body = random.randbytes(length)
        assert stamp.mac(body) == hmac.digest(key.key, body, "sha256")[:MAC_BYTES]


def test_no_bit_of_it_may_be_another() -> None:
    signed = signed_with(OWN, capability(user="me"))
    for bit in range(8 * len(signed)):
        forged = bytearray(signed)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(AccessDeniedError):
            checked(bytes(forged))


def test_bytes_of_strangers_are_refused_in_one_line() -> None:
    random = Random(1)
    for size in (0, 1, 24, 25, 40, 41, 42, 100, 296, 297, 5000):
        with pytest.raises(AccessDeniedError) as error:
            checked(random.randbytes(size))
        assert "\n" not in str(error.value)
    for size in (0, 1, 40, 297):
        with pytest.raises(AccessDeniedError):
            key_id(bytes(size))


def test_it_ends_by_the_clock_of_the_node() -> None:
    signed = signed_with(OWN, capability(until_s=1000))
    assert checked(signed, 999.9)
    with pytest.raises(AccessDeniedError, match="ended 5 s ago by this node's clock"):
        checked(signed, 1005.0)


def test_another_node_cannot_sign_for_this_one_nor_is_one_of_it_good_here() -> None:
    other = key_of(SHARED, "node-2")
    with pytest.raises(AccessDeniedError, match="for this node"):
        checked(signed_with(other, capability()))


def test_a_key_that_is_over_is_not_good_any_more() -> None:
    with pytest.raises(AccessDeniedError, match="over or never was"):
        checked(signed_with(BlockKey(4, OWN.key), capability()))


def test_it_is_for_one_block_and_the_rights_in_it() -> None:
    mine = capability()
    allow(mine, mine.block, int(Right.READ))
    allow(mine, mine.block, WRITE)
    with pytest.raises(AccessDeniedError, match=f"block 8: .* for block {mine.block}"):
        allow(mine, BlockId(8), int(Right.READ))
    for missing in (Right.CREATE, Right.DECIDE, Right.CREATE | Right.READ):
        with pytest.raises(AccessDeniedError, match="allows read and write, not"):
            allow(mine, mine.block, int(missing))


def test_a_key_is_not_shown() -> None:
    assert "shared" not in repr(SHARED)
    assert MAC_BYTES == 16, "128 bits cannot be guessed"


def test_no_message_shows_its_capability_when_it_is_printed() -> None:
    told = [
        each
        for module in (datanode, namenode)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
        if "capability" in each.__struct_fields__
    ]
    assert len(told) == 11
    for kind in told:
        given = {
            name: b"secret" if name == "capability" else name for name in kind.__struct_fields__
        }
        printed = repr(kind(**given))
        assert "secret" not in printed
        assert all(name in printed for name in given if name != "capability")
