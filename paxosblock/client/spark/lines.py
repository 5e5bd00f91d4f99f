r"""Lines: finds those of a split, and makes an Arrow array of them.

A line ends with "\n", or "\r\n", or at the end of the bytes read. The rule is Hadoop's: a split
takes the lines that *begin* in it, so it skips a line that began before its first byte, and reads
the last one to its end, wherever that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paxosblock.base.units import KIB
from paxosblock.client.spark.splits import Split
from paxosblock.errors import InvalidRequestError

NEWLINE: Final = b"\n"
_LOOK_BYTES: Final = 64 * KIB
"""Bytes that are fetched first when looking for a line end; twice as many after each failure."""
_LONGEST: Final = (1 << 31) - 2
"""Bytes that an Arrow string array addresses."""


def first_byte(split: Split) -> int:
    """Return the offset to read from. The byte before a split shows if a line begins with it."""
    return split.start if split.is_first else split.start - 1


def whole_lines(split: Split, pieces: Iterable[memoryview | bytes]) -> Iterator[bytes]:
    """Yield the lines of a split, many at a time; all end with a newline, even a last one without.

    Args:
        pieces: the file's bytes from `first_byte(split)` on, at least as many as are needed.

    Raises:
        InvalidRequestError: a line is longer than 2 GiB.
    """
    position, skips = first_byte(split), not split.is_first
    rest: list[bytes] = []
    for piece in pieces:
        data = bytes(piece[: split.end - position])
        position += len(data)
        if skips:
            _, newline, data = data.partition(NEWLINE)
            skips = not newline
        begin = position - len(data)
        if not rest and begin >= split.stop:
            return
        # The last line that begins before `stop` ends with the first newline from here on.
        last = data.find(NEWLINE, max(0, split.stop - 1 - begin))
        is_over = last >= 0 or position >= split.end
        whole = (last if last >= 0 else data.rfind(NEWLINE)) + 1
        if whole:
            yield _joined(split, [*rest, data[:whole]])
            rest = []
        if not is_over:
            rest += [data[whole:]] if whole < len(data) else []
            continue
        if last < 0:
            yield from _unended(split, [*rest, data[whole:]])
        return
    yield from _unended(split, rest)


def _unended(split: Split, rest: list[bytes]) -> Iterator[bytes]:
    """Yield a last line that ends with the file."""
    if any(rest):
        yield _joined(split, [*rest, NEWLINE])


def _joined(split: Split, parts: list[bytes]) -> bytes:
    if sum(map(len, parts)) > _LONGEST:
        raise InvalidRequestError(f"'{split.path}': a line is longer than 2 GiB", path=split.path)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def last_line_end(pread: Callable[[int, int], bytes], begin: int, end: int) -> int:
    """Return the end of the last line of [begin, end); `begin` if none ends there.

    Args:
        pread: reads so many bytes from an offset on.
    """
    stop = end
    step = _LOOK_BYTES
    while stop > begin:
        start = max(begin, stop - step)
        found = pread(start, stop - start).rfind(NEWLINE)
        if found >= 0:
            return start + found + 1
        stop, step = start, step * 2
    return begin


def next_line_end(pread: Callable[[int, int], bytes], begin: int, end: int) -> int:
    """Return the end of the line that goes on at `begin`; -1 if it does not end before `end`."""
    step = _LOOK_BYTES
    while begin < end:
        found = pread(begin, min(step, end - begin)).find(NEWLINE)
        if found >= 0:
            return begin + found + 1
        begin, step = begin + step, step * 2
    return -1


def line_array(lines: bytes) -> pa.StringArray:
    """Return an element for each line, without its end. The bytes are taken as they are, like in
    Spark: text that is no UTF-8 stays what it is."""
    if b"\r\n" in lines:
        lines = lines.replace(b"\r\n", NEWLINE)
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == NEWLINE[0]).astype(np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends + np.int32(1)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(lines)]
    with_ends = pa.Array.from_buffers(pa.binary(), len(ends), buffers)
    return pc.binary_slice(with_ends, 0, -1).view(pa.string())
