"""The frame layout (wire.py): every header survives the wire, and no damaged one is believed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paxosblock import errors
from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.base.checksum import crc32c
from paxosblock.net import wire
from paxosblock.net.wire import FrameKind, Header
from paxosblock.protocol.types import BlockId, ChunkIndex, Generation

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    kind = draw(st.sampled_from(FrameKind))
    return Header(
        kind=kind,
        flags=draw(st.sampled_from([0, 1])),
        payload_length=draw(st.integers(0, wire.max_payload_bytes(kind))),
        payload_crc=draw(U32),
        block=BlockId(draw(U64)),
        generation=Generation(draw(U64)),
        index=ChunkIndex(draw(U32)),
        acknowledged=draw(U32),
        request=draw(U32),
    )


@given(headers())
def test_a_header_survives_the_wire(header: Header) -> None:
    packed = header.pack()
    assert len(packed) == wire.HEADER_BYTES
    assert Header.unpack(packed) == header
    assert Header.unpack(b"before" + packed + b"after", offset=6) == header


@given(headers(), st.integers(0, wire.HEADER_BYTES * 8 - 1))
def test_a_header_with_one_flipped_bit_is_refused(header: Header, bit: int) -> None:
    packed = bytearray(header.pack())
    packed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(errors.ProtocolError):
        Header.unpack(packed)


@given(st.binary(max_size=100))
def test_any_other_bytes_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(errors.ProtocolError) as refused:
        Header.unpack(data)
    assert "\n" not in str(refused.value)


def test_the_layout_is_the_documented_one() -> None:
    """A worked example, byte for byte: disks and peers of other versions depend on it."""
    header = Header.of(
        FrameKind.CHUNK,
        b"hello",
        flags=int(wire.Flags.SYNC),
        block=BlockId(0x0102030405060708),
        generation=Generation(3),
        index=ChunkIndex(7),
        acknowledged=6,
        request=9,
    )
    body = bytes.fromhex(
        "50584231 01 01 0000 05000000 4cbb719a"
        "0807060504030201 0300000000000000 07000000 06000000 09000000"
    )
    assert header.pack() == body + crc32c(body).to_bytes(4, "little")


def with_valid_checksum(packed: bytes, offset: int, value: bytes) -> bytes:
    """`packed` with other bytes at `offset`, as a peer that speaks another version would send."""
    body = bytearray(packed[:44])
    body[offset : offset + len(value)] = value
    return bytes(body) + crc32c(body).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (0, b"HTTP", "bad magic: a frame begins with b'PXB1', not b'HTTP'"),
        (4, b"\x00", "unknown frame kind 0"),
        (4, b"\x09", "unknown frame kind 9"),
        (5, b"\x02", "unknown flags 0x2"),
        (6, b"\x01", "reserved field 0x1"),
        (8, (2**20 + 1).to_bytes(4, "little"), "1048577 bytes in a VOTE frame, at most 1048576"),
    ],
)
def test_a_refused_header_says_what_is_wrong(offset: int, value: bytes, reason: str) -> None:
    packed = Header(FrameKind.VOTE).pack()
    with pytest.raises(errors.ProtocolError, match=reason):
        Header.unpack(with_valid_checksum(packed, offset, value))


def test_only_a_chunk_may_be_longer_than_a_message() -> None:
    longest = Header(FrameKind.CHUNK, payload_length=MAX_CHUNK_BYTES)
    assert Header.unpack(longest.pack()).frame_length == MAX_CHUNK_BYTES + 48
    with pytest.raises(errors.ProtocolError, match="payload too long"):
        Header.unpack(replace(longest, payload_length=MAX_CHUNK_BYTES + 1).pack())


def test_a_field_that_does_not_fit_is_refused_by_the_sender() -> None:
    with pytest.raises(errors.ProtocolError, match="out of range"):
        Header(FrameKind.VOTE, generation=Generation(-1)).pack()


@given(st.binary(max_size=2000))
def test_a_payload_is_believed_only_with_its_own_checksum(payload: bytes) -> None:
    header = Header.of(FrameKind.CHUNK, payload)
    wire.verify_payload(header, payload)
    with pytest.raises(errors.CorruptionError, match="bytes"):
        wire.verify_payload(header, payload + b"\0")
    with pytest.raises(errors.CorruptionError, match="checksum"):
        wire.verify_payload(replace(header, payload_crc=header.payload_crc ^ 1), payload)


def every_error() -> list[type[errors.PaxosBlockError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.PaxosBlockError)
    ]


@pytest.mark.parametrize("kind", every_error())
def test_an_error_comes_out_as_the_class_it_went_in(kind: type[errors.PaxosBlockError]) -> None:
    sent = kind("not so", path="/a", block=7, message="details may have any key")
    got = wire.decode_error(wire.encode_error(sent))
    assert (type(got), str(got), got.details) == (kind, "not so", sent.details)


@given(st.binary(max_size=100))
def test_bytes_that_are_no_error_are_refused(data: bytes) -> None:
    with pytest.raises(errors.ProtocolError, match="not an error of paxosblock"):
        wire.decode_error(data)


class Ping(msgspec.Struct, frozen=True, tag=True):
    text: str
    numbers: tuple[int, ...] = ()


class Stranger(msgspec.Struct, frozen=True, tag=True):
    text: str


TABLE = wire.MessageTable((Ping,))


@given(st.text(), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_a_message_comes_out_as_the_type_it_went_in(text: str, numbers: list[int]) -> None:
    message = Ping(text, tuple(numbers))
    assert TABLE.decode(TABLE.encode(message)) == message


def test_a_message_that_is_not_in_the_table_is_refused_on_both_sides() -> None:
    with pytest.raises(errors.ProtocolError, match="Stranger is no message"):
        TABLE.encode(Stranger("a"))
    with pytest.raises(errors.ProtocolError, match=r"malformed message: .*Stranger"):
        TABLE.decode(wire.MessageTable((Stranger,)).encode(Stranger("a")))


@given(st.binary(max_size=100))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(errors.ProtocolError):
        TABLE.decode(data)


def test_a_message_of_the_wrong_shape_is_refused_and_the_field_is_named() -> None:
    wrong = TABLE.encode(Ping("a")).replace(b"\xa1a", b"\x01")
    with pytest.raises(errors.ProtocolError, match=r"malformed message: .*text"):
        TABLE.decode(wrong)
