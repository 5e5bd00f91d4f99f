"""Paths: absolute, normalised, with HDFS's rules for names."""

from __future__ import annotations

import functools

from paxosblock.errors import InvalidRequestError

PATH_BYTES_MAX = 8000
NAME_BYTES_MAX = 255
NAMES_MAX = 1000
"""As in HDFS (FSLimitException, FSNamesystem): the work of walking a path stays bounded."""
SPLIT_KEPT = 256
"""Number of paths whose names are remembered: a request splits its path several times."""
SEPARATOR = "/"
ROOT = "/"


@functools.lru_cache(SPLIT_KEPT)
def split(path: str) -> tuple[str, ...]:
    """Return the names on the way from the root to `path`; none for the root itself.

    Raises:
        InvalidRequestError: `path` breaks a rule; the message names the path and the rule.
    """
    if not path.startswith(SEPARATOR):
        raise _refused(path, "a path starts with '/'")
    if _size_bytes(path) > PATH_BYTES_MAX:
        raise _refused(path[:40] + "...", f"a path has at most {PATH_BYTES_MAX} bytes")
    if path == ROOT:
        return ()
    names = tuple(path[1:].split(SEPARATOR))
    if len(names) > NAMES_MAX:
        raise _refused(path[:40] + "...", f"a path has at most {NAMES_MAX} names")
    _check_names(path, names)
    return names


def join(names: tuple[str, ...]) -> str:
    """Return the path that `split` takes apart into `names`."""
    return SEPARATOR + SEPARATOR.join(names)


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
    if ":" in path or "\0" in path:
        raise _refused(path, "a name has no ':' and no NUL byte")
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
