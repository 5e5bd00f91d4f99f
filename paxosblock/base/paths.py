"""Paths of the cluster: as programs write them, and with HDFS's rules for their names."""

from __future__ import annotations

import functools
import os
from typing import Final

from paxosblock.errors import InvalidRequestError

PATH_BYTES_MAX = 8000
NAME_BYTES_MAX = 255
NAMES_MAX = 1000
"""As in HDFS (FSLimitException, FSNamesystem): the work of walking a path stays bounded."""
SPLIT_KEPT = 256
"""Number of paths whose names are remembered: a request splits its path several times."""
SEPARATOR = "/"
ROOT = "/"
STAGING: Final = "/.staging"
"""Directory of the hidden names of files that are not published yet; fsspec does not list it."""

AnyPath = str | os.PathLike[str]
"""A path of the cluster: a str, or a `pathlib.PurePosixPath`."""


def text_of(path: AnyPath) -> str:
    """Return a path as a str.

    Raises:
        InvalidRequestError: it is none.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidRequestError(f"{path!r}: a path is a str or a pathlib path")
    return text


def is_path(text: str) -> bool:
    """True for "/" and for "/a/b": absolute, and no name in it is empty, "." or "..".

    This is all that a reader of an answer demands: a NameNode of another version may allow names
    that `split` refuses.
    """
    if not text.startswith("/"):
        return False
    if "/." not in text and "//" not in text and text[-1] != "/" and "\0" not in text:
        return True  # most of them, at the price of no list
    names = text[1:].split("/")
    return text == "/" or not any(name in {"", ".", ".."} or "\0" in name for name in names)


@functools.lru_cache(SPLIT_KEPT)
def split(path: str) -> tuple[str, ...]:
    """Return the names on the way from the root to `path`; none for the root itself.

    Raises:
        InvalidRequestError: `path` breaks a rule; the message names the path and the rule.
    """
    if not path.startswith(SEPARATOR):
        raise not_absolute(path)
    if _size_bytes(path) > PATH_BYTES_MAX:
        raise _refused(path[:40] + "...", f"a path has at most {PATH_BYTES_MAX} bytes")
    if path == ROOT:
        return ()
    names = tuple(path[1:].split(SEPARATOR))
    if len(names) > NAMES_MAX:
        raise _refused(path[:40] + "...", f"a path has at most {NAMES_MAX} names")
    _check_names(path, names)
    return names


def not_absolute(path: str) -> InvalidRequestError:
    """Return the error for a path, or a pattern of paths, that does not begin at the root."""
    return _refused(path, "a path starts with '/'")


def join(names: tuple[str, ...]) -> str:
    """Return the path that `split` takes apart into `names`."""
    return SEPARATOR + SEPARATOR.join(names)


def is_below(path: str, top: str) -> bool:
    """True if `path` is `top` or below it."""
    return f"{path}/".startswith(f"{top.rstrip('/')}/")


def shown(path: str) -> str:
    """Return a path as messages quote it: on one line, whatever is in it."""
    text = path if path.isprintable() else path.encode("unicode_escape").decode()
    return f"'{text}'"


def _check_names(path: str, names: tuple[str, ...]) -> None:
    if "" in names:
        raise _refused(path, "a name is empty (two '/' in a row, or one at the end)")
    for name in (".", ".."):
        if name in names:
            raise _refused(path, f"{shown(name)} is not a name here")
    if "\0" in path:
        raise _refused(path, "a name has no NUL byte")
    longest = max(map(len, names))  # characters, each with up to four bytes
    if longest * 4 > NAME_BYTES_MAX and max(map(_size_bytes, names)) > NAME_BYTES_MAX:
        raise _refused(path, f"a name has at most {NAME_BYTES_MAX} bytes")


def _size_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise _refused(text, "a path is valid Unicode text") from None


def _refused(path: str, rule: str) -> InvalidRequestError:
    return InvalidRequestError(f"{shown(path)}: {rule}", path=path)
