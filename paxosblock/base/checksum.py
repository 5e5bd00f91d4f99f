"""CRC32C of chunks: the name of a chunk's bytes in every vote.

The `crc32c` package runs at memory speed and takes any buffer without a copy; see
docs/dependencies.md for what was considered instead.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final, Protocol, cast

Buffer = bytes | bytearray | memoryview
"""Types in which bytes come in."""


class _Checksum(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def _load() -> _Checksum:
    """Return the package's compiled function without the package's own module.

    The module looks up its version at each import, which takes longer than importing half of our
    client.
    """
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        raise ImportError("crc32c, which paxosblock needs, is not installed as it should be")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(_Checksum, module.crc32c)


crc32c: Final = _load()
"""CRC32C (Castagnoli) of `data`, an unsigned 32-bit integer; 0 for no bytes.

`value` is the CRC of the bytes before `data`, to checksum a buffer in pieces.
"""
