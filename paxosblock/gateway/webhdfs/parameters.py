"""The path and the parameters of a request to WebHDFS, decoded once."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from paxosblock.base.modes import PERMISSION_MAX
from paxosblock.gateway.webhdfs.remote_exceptions import HadoopError, JavaError

PREFIX: Final = "/webhdfs/v1"
PARAMETERS_MAX: Final = 256
_FLAGS: Final = {"true": True, "false": False}
_OCTAL: Final = re.compile(r"[01]?[0-7]{1,3}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
LONG_MAX: Final = (1 << 63) - 1
"""The greatest number that Java's `long` has."""


def decoded(text: str, what: str) -> str:
    """Return a text that was percent-encoded.

    Raises:
        HadoopError: it is not UTF-8.
    """
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise HadoopError(JavaError.ILLEGAL_ARGUMENT, f"{what} is not UTF-8") from None


def path_of(raw_path: str) -> str:
    """Return the path of the cluster that the raw path of a request means.

    Raises:
        HadoopError: it is not UTF-8.
    """
    path = decoded(raw_path.removeprefix(PREFIX), "the path") or "/"
    return path[:-1] if path.endswith("/") and path != "/" else path


def invalid(name: str, why: str) -> HadoopError:
    """Return Hadoop's refusal of a parameter."""
    words = f'Invalid value for webhdfs parameter "{name}": {why}'
    return HadoopError(JavaError.ILLEGAL_ARGUMENT, words)


class Parameters:
    """The parameters of one request. Case does not count in names, nor in true and false."""

    def __init__(self, query: str) -> None:
        """Read what stands behind the `?`.

        Raises:
            HadoopError: there are too many, or one is not UTF-8.
        """
        parts = [part for part in query.split("&") if part]
        if len(parts) > PARAMETERS_MAX:
            words = f"a request has at most {PARAMETERS_MAX} parameters"
            raise HadoopError(JavaError.ILLEGAL_ARGUMENT, words)
        self._values: dict[str, list[str]] = {}
        for part in parts:
            name, _, value = part.replace("+", " ").partition("=")
            name = decoded(name, "the name of a parameter").lower()
            self._values.setdefault(name, []).append(decoded(value, f'parameter "{name[:40]}"'))

    def has(self, name: str) -> bool:
        """True if a parameter is there, and not empty."""
        return bool(self.text(name))

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter, the first if there are several."""
        return self._values.get(name, [default])[0] or default

    def texts(self, name: str) -> list[str]:
        """Return all values of a parameter that may stand there several times."""
        return [value for value in self._values.get(name, []) if value]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a parameter that is true or false. Raises HadoopError if it is neither."""
        written = self.text(name)
        if written.lower() in ("", "null"):
            return default
        if (value := _FLAGS.get(written.lower())) is None:
            raise invalid(name, f"Failed to parse {written[:100]!r} to Boolean.")
        return value

    def number(self, name: str, *, least: int = 0) -> int | None:
        """Return a number; None if it is not there. Raises HadoopError if it is none, or less than
        `least`, or more than a `long` of Java."""
        written = self.text(name)
        if written.lower() in ("", "null"):
            return None
        if not _NUMBER.fullmatch(written) or int(written) > LONG_MAX:
            raise invalid(name, f"Failed to parse {written[:100]!r} as a radix-10 long integer.")
        if (value := int(written)) < least:
            raise invalid(name, f"{name} = {value} < {least}")
        return value

    def permission(self, name: str, default: int) -> int:
        """Return permission bits, which are written in octal. Raises HadoopError if they are
        not."""
        written = self.text(name)
        if written.lower() in ("", "null"):
            return default
        if not _OCTAL.fullmatch(written) or (bits := int(written, 8)) > PERMISSION_MAX:
            raise invalid(name, f"Failed to parse {written[:100]!r} as a radix-8 short integer.")
        return bits

    def absolute_path(self, name: str) -> str:
        """Return a path. Raises HadoopError if it is missing, or does not begin with `/`."""
        path = self.text(name)
        if not path.startswith("/"):
            raise invalid(name, f"{path[:100]!r} is not an absolute path.")
        return path[:-1] if path.endswith("/") and path != "/" else path
