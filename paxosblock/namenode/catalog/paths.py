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
    if _size_bytes(path, path) > PATH_BYTES_MAX:
        raise _refused(path[:40] + "...", f"a path has at most {PATH_BYTES_MAX} bytes")
    if path == ROOT:
        return ()
    names = tuple(path[1:].split(SEPARATOR))
    if len(names) > NAMES_MAX:
        raise _refused(path[:40] + "...", f"a path has at most {NAMES_MAX} names")
    for name in names:
        _check_name(path, name)
    return names


def join(names: tuple[str, ...]) -> str:
    """Return the path that `split` takes apart into `names`."""
    return SEPARATOR + SEPARATOR.join(names)


def shown(path: str) -> str:
    """Return a path as messages quote it: on one line, whatever is in it."""
    text = path if path.isprintable() else path.encode("unicode_escape").decode()
    return f"'{text}'"


def _check_name(path: str, name: str) -> None:
    if not name:
        raise _refused(path, "a name is empty (two '/' in a row, or one at the end)")
    if name in (".", ".."):
        raise _refused(path, f"{shown(name)} is not a name here")
    if ":" in name or "\0" in name:
        raise _refused(path, "a name has no ':' and no NUL byte")
    if len(name) * 4 > NAME_BYTES_MAX and _size_bytes(path, name) > NAME_BYTES_MAX:
        raise _refused(path, f"a name has at most {NAME_BYTES_MAX} bytes")


def _size_bytes(path: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise _refused(path, "a path is valid Unicode text") from None


def _refused(path: str, rule: str) -> InvalidRequestError:
    return InvalidRequestError(f"{shown(path)}: {rule}", path=path)
