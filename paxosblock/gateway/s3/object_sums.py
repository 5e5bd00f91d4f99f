"""Checksums of bodies: computed while the bytes come, and compared with what a program says."""

from __future__ import annotations

import base64
import enum
import hashlib
import importlib.util
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Final, Protocol

import crc32c

from paxosblock.base.checksum import Buffer
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, not_implemented
from paxosblock.gateway.s3.signatures import base64_bytes

PREFIX: Final = "x-amz-checksum-"
NO_SUMS: Final = frozenset({f"{PREFIX}{name}" for name in ("algorithm", "mode", "type")})
"""Headers that begin as those of checksums do."""
NAMED_SUM: Final = "x-amz-sdk-checksum-algorithm"
SUM_ALGORITHM: Final = "x-amz-checksum-algorithm"
SUM_TYPE: Final = "x-amz-checksum-type"
CONTENT_MD5: Final = "content-md5"


class SumKind(enum.Enum):
    """A checksum of S3: its name, the bytes that it has, and if it is a CRC."""

    CRC32 = "CRC32", 4, True
    CRC32C = "CRC32C", 4, True
    CRC64NVME = "CRC64NVME", 8, True
    SHA1 = "SHA1", 20, False
    SHA256 = "SHA256", 32, False

    def __init__(self, word: str, size: int, is_crc: bool) -> None:
        self.word = word
        self.size = size
        self.is_crc = is_crc

    @property
    def header(self) -> str:
        """Return the header that has it."""
        return f"{PREFIX}{self.word.lower()}"

    @property
    def element(self) -> str:
        """Return the element of XML that has it."""
        return f"Checksum{self.word}"


class Sum(Protocol):
    """A checksum that grows."""

    def update(self, data: Buffer, /) -> None:
        """Add bytes."""

    def digest(self) -> bytes:
        """Return the checksum of all of them."""


class _Crc:
    """A CRC by a function that goes on with the one before."""

    def __init__(self, kind: SumKind) -> None:
        self._size = kind.size
        self._value = 0
        self._next: Callable[[Buffer, int], int]
        if kind is SumKind.CRC32:
            self._next = zlib.crc32
        elif kind is SumKind.CRC32C:
            self._next = crc32c.crc32c
        else:
            from awscrt.checksums import crc64nvme  # noqa: PLC0415 - of the extra [s3]

            self._next = crc64nvme

    def update(self, data: Buffer, /) -> None:
        self._value = self._next(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


def has_crc64() -> bool:
    """True if there is a program for CRC64NVME here."""
    return importlib.util.find_spec("awscrt") is not None


def new_sum(kind: SumKind) -> Sum:
    """Return the checksum of no bytes.

    Raises:
        S3Error: it needs a package that is not here.
    """
    if kind is SumKind.CRC64NVME and not has_crc64():
        raise not_implemented(
            "CRC64NVME, for which the gateway needs the package awscrt (pip install paxosblock[s3])"
        )
    if kind.is_crc:
        return _Crc(kind)
    return hashlib.new(kind.word.lower(), usedforsecurity=False)


def sum_kind(word: str) -> SumKind:
    """Return the checksum that a program names. Raises S3Error if there is none."""
    for kind in SumKind:
        if kind.word == word.upper():
            return kind
    raise S3Error(
        S3Code.INVALID_REQUEST,
        "Checksum algorithm provided is unsupported. Please try again with any of the valid types: "
        f"[{', '.join(kind.word for kind in SumKind)}]",
    )


_POLYNOMIALS: Final = {
    SumKind.CRC32: 0xEDB88320,
    SumKind.CRC32C: 0x82F63B78,
    SumKind.CRC64NVME: 0x9A6C9329AC4BC9B5,
}
"""Those of the CRCs, the highest power in the lowest bit."""


def joined_crc(kind: SumKind, first: bytes, second: bytes, size: int) -> bytes:
    """Return the CRC of bytes whose first part has the CRC `first`, and the second, of so many
    bytes, `second`: the first one, times x to the number of bits behind it, and the second."""
    polynomial, top = _POLYNOMIALS[kind], 1 << (8 * kind.size - 1)

    def times(one: int, other: int) -> int:
        product = 0
        while one:
            if one & top:
                product ^= other
            one = (one << 1) & (2 * top - 1)
            other = (other >> 1) ^ (polynomial if other & 1 else 0)
        return product

    moved, power, left = int.from_bytes(first, "big"), top >> 8, size
    while left:
        if left & 1:
            moved = times(moved, power)
        power = times(power, power)
        left >>= 1
    return (moved ^ int.from_bytes(second, "big")).to_bytes(kind.size, "big")


def wrong_sum(kind: SumKind) -> S3Error:
    """Return the refusal of bytes that have another checksum than the program says."""
    words = f"The {kind.word} you specified did not match the calculated checksum."
    return S3Error(S3Code.BAD_DIGEST, words)


def sum_type(*, whole: bool) -> str:
    """Return how S3 calls a checksum: of all bytes of an object, or of the sums of its parts."""
    return "FULL_OBJECT" if whole else "COMPOSITE"


def invalid_header(name: str) -> S3Error:
    """Return the refusal of a header about checksums whose value can be none."""
    return S3Error(S3Code.INVALID_REQUEST, f"Value for {name} header is invalid.")


def check_value(kind: SumKind, said: str) -> None:
    """Demand that the value of a header can be a checksum. Raises S3Error."""
    if base64_bytes(said, kind.size) is None:
        raise invalid_header(kind.header)


def several_sums() -> S3Error:
    """Return the refusal of more than one checksum."""
    words = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
    return S3Error(S3Code.INVALID_REQUEST, words)


class BodySums:
    """The checksums of one body, and those that its sender says it has."""

    def __init__(self) -> None:
        self._said: dict[SumKind, str] = {}
        self._late: set[SumKind] = set()
        self._running: dict[SumKind, Sum] = {}
        self._md5: bytes | None = None
        self._running_md5: Sum | None = None

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> BodySums:
        """Return those that the headers of a request tell, or announce for its trailer.

        Raises:
            S3Error: one is none, or several are told, or it cannot be computed here.
        """
        sums = cls()
        for name in {name.lower() for name in headers if name.lower().startswith(PREFIX)} - NO_SUMS:
            sums.expect(sum_kind(name.removeprefix(PREFIX)), headers[name])
        for name in headers.get("x-amz-trailer", "").lower().split(","):
            if name.strip().startswith(PREFIX):
                kind = sum_kind(name.strip().removeprefix(PREFIX))
                sums._late.add(kind)
                sums.compute(kind)
        if len(sums._said) + len(sums._late) > 1:
            raise several_sums()
        for kind in sums._said.keys() | sums._late:
            if headers.get(NAMED_SUM, kind.word).upper() != kind.word:
                raise invalid_header(NAMED_SUM)
        if (said := headers.get(CONTENT_MD5)) is not None:
            sums._md5 = base64_bytes(said, 16)
            if sums._md5 is None:
                words = "The Content-MD5 you specified was invalid."
                raise S3Error(S3Code.INVALID_DIGEST, words)
            sums._running_md5 = hashlib.md5(usedforsecurity=False)
        return sums

    def expect(self, kind: SumKind, said: str) -> None:
        """Demand that the body has this checksum. Raises S3Error if it is none."""
        check_value(kind, said)
        self._said[kind] = said
        self.compute(kind)

    def compute(self, kind: SumKind) -> None:
        """Compute this checksum of the body. Raises as `new_sum`."""
        self._running.setdefault(kind, new_sum(kind))

    @property
    def kinds(self) -> set[SumKind]:
        """Return those that are computed."""
        return {*self._running}

    @property
    def are_told(self) -> bool:
        """True if the sender tells one, or will."""
        return bool(self._said or self._late or self._md5)

    def update(self, data: Buffer) -> None:
        """Add bytes of the body."""
        for each in self._running.values():
            each.update(data)
        if self._running_md5 is not None:
            self._running_md5.update(data)

    async def of_all(self, body: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
        """Yield the bytes of a body, and add them."""
        async for piece in body:
            self.update(piece)
            yield piece

    def told_late(self, trailer: Iterable[tuple[str, str]]) -> None:
        """Take what the trailer of the body says.

        Raises:
            S3Error: it lacks a checksum that was announced, or it is none.
        """
        found = dict(trailer)
        for kind in self._late:
            if (said := found.get(kind.header)) is None:
                words = f"the trailer lacks {kind.header}, which was announced"
                raise S3Error(S3Code.MALFORMED_TRAILER, words)
            self.expect(kind, said)

    def check(self) -> None:
        """Compare, when all bytes came.

        Raises:
            S3Error: the bytes are not those that were sent.
        """
        if self._running_md5 is not None and self._running_md5.digest() != self._md5:
            words = "The Content-MD5 you specified did not match what we received."
            raise S3Error(S3Code.BAD_DIGEST, words)
        for kind, said in self._said.items():
            if base64_bytes(said, kind.size) != self._running[kind].digest():
                raise wrong_sum(kind)

    @property
    def known(self) -> dict[str, str]:
        """Return the checksums of the body in base64, by their names."""
        return {
            kind.word: base64.b64encode(each.digest()).decode()
            for kind, each in self._running.items()
        }
