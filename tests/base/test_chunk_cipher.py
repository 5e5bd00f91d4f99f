"""Encrypted chunks: what a client wrote comes back, and nothing else passes for it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.base.checksum import crc32c
from paxosblock.base.chunk_cipher import (
    ADDED_BYTES,
    KEY_BYTES,
    NONCE_BYTES,
    ChunkCipher,
    key_of_block,
    stored_bytes,
    user_bytes,
)
from paxosblock.errors import CorruptionError
from paxosblock.protocol.chunk_log import ChunkLog

KEY = bytes(range(KEY_BYTES))
BLOCK = 7
PLACES = st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 40))
NONCES = 200_000
"""Two of so many random nonces are the same with a chance of 2^-61."""


def decrypted(chunk: bytes, index: int, begin: int, *, block: int = BLOCK) -> bytes:
    into = memoryview(bytearray(len(chunk) - ADDED_BYTES))
    ChunkCipher(key_of_block(KEY, block), block).decrypt_into(index, begin, memoryview(chunk), into)
    return bytes(into)


def encrypted(data: bytes, index: int, begin: int, *, block: int = BLOCK) -> bytes:
    return bytes(ChunkCipher(key_of_block(KEY, block), block).encrypt(index, begin, data))


@given(st.binary(max_size=300), PLACES)
def test_what_was_encrypted_comes_back_and_is_not_in_the_chunk(
    data: bytes, place: tuple[int, int]
) -> None:
    chunk = encrypted(data, *place)
    assert len(chunk) == len(data) + ADDED_BYTES
    assert decrypted(chunk, *place) == data
    assert len(data) < 4 or data not in chunk


@settings(max_examples=20)
@given(st.binary(max_size=40), PLACES)
def test_each_flipped_bit_is_noticed(data: bytes, place: tuple[int, int]) -> None:
    chunk = encrypted(data, *place)
    for bit in range(8 * len(chunk)):
        changed = bytearray(chunk)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decrypted(bytes(changed), *place)


@given(st.binary(max_size=40), PLACES, st.integers(1, 9))
def test_a_chunk_is_good_in_its_own_place_only(
    data: bytes, place: tuple[int, int], off: int
) -> None:
    index, begin = place
    chunk = encrypted(data, index, begin)
    for other in ((index + off, begin), (index, begin + off)):
        with pytest.raises(CorruptionError):
            decrypted(chunk, *other)
    with pytest.raises(CorruptionError):
        decrypted(chunk, index, begin, block=BLOCK + off)


def test_another_block_has_another_key_and_so_has_another_zone() -> None:
    keys = {key_of_block(zone, block) for zone in (KEY, bytes(KEY_BYTES)) for block in range(500)}
    assert len(keys) == 1000
    assert {len(key) for key in keys} == {KEY_BYTES}


def test_the_same_data_in_the_same_place_never_have_the_same_nonce() -> None:
    """A place may be written again in a later generation."""
    cipher = ChunkCipher(KEY, BLOCK)
    nonces = {bytes(cipher.encrypt(0, 0, b"x")[:NONCE_BYTES]) for _ in range(NONCES)}
    assert len(nonces) == NONCES


@given(st.lists(st.integers(0, 40), max_size=30), st.sampled_from([0, ADDED_BYTES]))
def test_a_byte_of_user_data_is_found_in_its_chunk(sizes: list[int], added: int) -> None:
    log = ChunkLog()
    for size in sizes:
        log = log.append(size + added, crc32c(os.urandom(4)))
    assert log.size_bytes == stored_bytes(sum(sizes), len(sizes), added)
    assert user_bytes(log.size_bytes, len(log), added) == sum(sizes)
    owners = [index for index, size in enumerate(sizes) for _ in range(size)]
    assert [log.index_at(at, added) for at in range(sum(sizes))] == owners
    assert log.index_at(sum(sizes), added) == len(sizes)
