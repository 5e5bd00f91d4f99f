"""Paths as programs write them."""

from __future__ import annotations

import os
from typing import Final

from paxosblock.errors import InvalidRequestError

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
    """True for "/" and for "/a/b": absolute, and no name in it is empty, "." or ".."."""
    if not text.startswith("/"):
        return False
    if "/." not in text and "//" not in text and text[-1] != "/" and "\0" not in text:
        return True  # most of them, at the price of no list
    names = text[1:].split("/")
    return text == "/" or not any(name in {"", ".", ".."} or "\0" in name for name in names)
