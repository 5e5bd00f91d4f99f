"""`sync_file_range`, for which Python has no name."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE
_WAIT_AFTER: Final = 4  # SYNC_FILE_RANGE_WAIT_AFTER

_call: Final[Any] = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
if _call is not None:  # Linux has it
    _call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    _call.restype = ctypes.c_int


def write_out(file: int) -> None:
    """Return once the disk has all that was written to `file`, a descriptor. Blocks.

    Neither the file's length nor the place of its bytes is durable after that.

    Raises:
        OSError: the disk did not take it; a later `fdatasync` of the descriptor need not say so.
    """
    if _call is None:
        os.fdatasync(file)
    elif _call(file, 0, 0, _WRITE | _WAIT_AFTER):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
