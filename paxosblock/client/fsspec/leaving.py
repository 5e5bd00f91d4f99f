"""Whether a file is being closed because its `with` block is left by an exception."""

from __future__ import annotations

import sys
from types import FrameType


def left_by_exception(before: BaseException | None) -> bool:
    """True if the caller runs inside the `__exit__` of a block that raised.

    A file hears of the exception only when the block is its own. `fsspec.open`, pandas, pyarrow and
    `contextlib` have a block of theirs, and close the file from its `__exit__` without a word: it
    would be published half written. So look for the exception that is under way, and for an
    `__exit__` among the callers that was given it. A `close()` in an `except` or `finally` clause
    is an ordinary one, and so is a block there that ends well.

    Args:
        before: the exception that was being handled when the file was opened: it is older than the
            block.
    """
    error = sys.exception()
    if error is None or error is before:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__exit__" and _was_given(frame, error):
            return True
        frame = frame.f_back
    return False


def _was_given(frame: FrameType, error: BaseException) -> bool:
    """True if `error` is among the arguments of a call, by itself or in its `*args`."""
    given = frame.f_locals.values()
    return any(
        each is error or (isinstance(each, tuple) and any(one is error for one in each))
        for each in given
    )
