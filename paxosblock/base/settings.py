"""Kinds of settings: what a user writes for one, and which values make sense.

A configuration class gives each field one of the types below; `settings_of` reads them back.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Any, Final, cast, get_args, get_type_hints

from paxosblock.base.modes import UMASK_MAX
from paxosblock.base.rack import is_host, is_rack
from paxosblock.base.units import (
    format_duration,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)
from paxosblock.base.user_names import NAME_EXPECTED, is_user
from paxosblock.errors import ConfigError

SURELY_MEANT: Final = 0.8
"""The likeness that a name needs to one that stands for another, which may look unlike both."""


def did_you_mean(name: str, known: Iterable[str], **meant: str) -> str:
    """Return the end of an error line about an unknown name: the known name that has its letters,
    the nearest one, or what a key of `meant` that is much nearer stands for; "" if none is near.
    """
    by_lower = {each.lower(): each for each in known}
    others = {each.lower(): stands_for for each, stands_for in meant.items()}
    nearest = get_close_matches(name.lower(), others, n=1, cutoff=SURELY_MEANT)
    letters = sorted(name.lower())
    nearest = nearest or [each for each in by_lower if sorted(each) == letters]
    nearest = nearest or get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {(others | by_lower)[nearest[0]]!r}?" if nearest else ""


@dataclass(frozen=True, slots=True)
class SettingKind:
    """One kind of setting, with the way from what a user writes to its value.

    `suffix` ends the attribute's name and states the unit of the value; users do not write it.
    `parse` raises ConfigError for what it cannot read, `allows` says which values make sense.
    `from_text` gives what TOML would have read of a text from the environment or a flag, which have
    no types; `shown` writes a value that `as_written` does not know by its type and unit.
    """

    suffix: str
    expected: str
    parse: Callable[[object], Any]
    allows: Callable[[Any], bool]
    from_text: Callable[[str], object] = str
    shown: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting by the name users know, and the attribute that holds it."""

    name: str
    attribute: str
    kind: SettingKind

    def read(self, written: object, where: str) -> Any:
        """Return the value of the text that a user wrote.

        Raises:
            ConfigError: it is wrong; the message starts with `where`.
        """
        wrong = f"{where} = {written!r}: expected {self.kind.expected}"
        try:
            value = self.kind.parse(written)
        except ConfigError as error:
            raise ConfigError(f"{wrong} ({error})") from error
        if not self.kind.allows(value):
            raise ConfigError(wrong)
        return value


def settings_of(config: type) -> Mapping[str, Setting]:
    """Return the settings of a configuration class by name, in the order of its fields."""
    found = {}
    for attribute, hint in get_type_hints(config, include_extras=True).items():
        kinds = [extra for extra in get_args(hint)[1:] if isinstance(extra, SettingKind)]
        for kind in kinds:
            name = attribute.removesuffix(kind.suffix)
            found[name] = Setting(name, attribute, kind)
    return found


def as_written(setting: Setting, value: object) -> str:
    """Return a value as a user writes it, without quotes."""
    match value, setting.kind.suffix:
        case bool(), _:
            return str(value).lower()
        case enum.Enum(), _:
            return str(value.value)
        case int() | float(), "_s":
            return format_duration(value)
        case int(), "_bytes":
            return format_size(value)
        case int(), "_bytes_per_s":
            return f"{format_size(value)}/s"
        case (), _:
            return "{}"
        case tuple(), _:
            rows = (f'"{name}" = "{_row(of)}"' for name, of in value)
            return f"{{ {', '.join(rows)} }}"
        case None, _:
            return '""'
    return setting.kind.shown(value)


def _row(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def choice(kind: type[enum.Enum], none: str | None = None) -> SettingKind:
    """Return the kind of a setting that is one member of an enum, written as the member's value.

    `none` is how users write that there is no such value; None: there must be one.
    """
    members: dict[str, object] = {str(member.value): member for member in kind}
    members |= {} if none is None else {none: None}
    return SettingKind(
        suffix="",
        expected="one of " + ", ".join(f'"{value}"' for value in members),
        parse=lambda written: members.get(str(written), written),
        allows=lambda value: value in members.values(),
    )


def _is_whole(value: object) -> bool:
    return type(value) is int  # True and False are ints to isinstance


def _is_finite(value: object) -> bool:
    return type(value) in {int, float} and math.isfinite(cast(float, value))


def _read_number(written: object) -> object:
    """Return the number in a text, as the environment has it; anything else as it is."""
    try:
        return float(written) if isinstance(written, str) else written
    except ValueError:
        return written


_SECONDS: Final = SettingKind(
    suffix="_s",
    expected='a duration above zero, such as "60s"',
    parse=lambda written: parse_duration(str(written)),
    allows=lambda value: _is_finite(value) and value > 0,
)
_BYTES: Final = SettingKind(
    suffix="_bytes",
    expected='a size above zero, such as "512KiB"',
    parse=lambda written: parse_size(str(written)),
    allows=lambda value: _is_whole(value) and value > 0,
)
_BYTES_PER_SECOND: Final = SettingKind(
    suffix="_bytes_per_s",
    expected='a rate above zero, such as "64MiB/s"',
    parse=lambda written: parse_rate(str(written)),
    allows=lambda value: _is_whole(value) and value > 0,
)
_COUNT: Final = SettingKind(
    suffix="",
    expected="a whole number from 1 on",
    parse=lambda written: written,
    allows=lambda value: _is_whole(value) and value > 0,
    from_text=lambda text: int(text) if text.isdecimal() else text,
)

_SHARE: Final = SettingKind(
    suffix="",
    expected="a share from 0 to 1, such as 0.999",
    parse=_read_number,
    allows=lambda value: _is_finite(value) and 0 <= value <= 1,
)


def _read_racks(written: object) -> tuple[tuple[str, str], ...]:
    """Read a table of TOML, or the same in one line: `dn1=/dc1/r1,dn2=/dc1/r2`."""
    if isinstance(written, str):
        rows = [row.rpartition("=") for row in written.split(",") if row]
        written = {name: rack for name, _, rack in rows}
    if not isinstance(written, Mapping):
        raise ConfigError("this is no table")
    for name, rack in written.items():
        if not (name and is_rack(rack)):
            raise ConfigError(f"{name} = {rack!r} is none")
    return tuple(written.items())


_RACK: Final = SettingKind(
    suffix="",
    expected='a rack, a path such as "/dc1/r7"',
    parse=lambda written: written,
    allows=is_rack,
)
_RACKS: Final = SettingKind(
    suffix="",
    expected='a table of racks by DataNode or machine, such as { dn1 = "/dc1/r7" }',
    parse=_read_racks,
    allows=lambda value: isinstance(value, tuple),
)


def _read_groups(written: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read a table of TOML, or the same in one line: `ann=dev,ops;bob=`."""
    if isinstance(written, str):
        rows = [row.partition("=") for row in written.split(";") if row]
        written = {user: groups for user, _, groups in rows}
    if not isinstance(written, Mapping):
        raise ConfigError("this is no table")
    read = {}
    for user, groups in written.items():
        names = [group.strip() for group in str(groups).split(",") if group.strip()]
        if not all(is_user(name) for name in (user, *names)):
            raise ConfigError(f"{user} = {groups!r}: a name has {NAME_EXPECTED}")
        read[user] = tuple(names)
    return tuple(read.items())


_GROUPS: Final = SettingKind(
    suffix="",
    expected='a table of the groups of users, such as { ann = "dev,ops" }',
    parse=_read_groups,
    allows=lambda value: isinstance(value, tuple),
)
_FILE: Final = SettingKind(
    suffix="",
    expected="the path of a file",
    parse=lambda written: written,
    allows=lambda value: isinstance(value, str) and "\0" not in value,
)
_COMMAND: Final = SettingKind(
    suffix="",
    expected="a command with its arguments",
    parse=lambda written: written,
    allows=lambda value: isinstance(value, str) and "\0" not in value,
)
_HOST: Final = SettingKind(
    suffix="",
    expected="a machine's name, without spaces",
    parse=lambda written: written,
    allows=is_host,
)

_USER: Final = SettingKind(
    suffix="",
    expected=f"the name of a user, {NAME_EXPECTED}",
    parse=lambda written: written,
    allows=lambda value: value == "" or is_user(value),
)

_TEXT: Final = SettingKind(
    suffix="",
    expected="a text without spaces",
    parse=lambda written: written,
    allows=lambda value: isinstance(value, str) and value.split() == [value] * bool(value),
)

TOKEN: Final = SettingKind(
    suffix="",
    expected="the token of a user, one word",
    parse=lambda written: written,
    allows=lambda value: isinstance(value, str),
)
"""The kind of a setting that is a secret, which no error shows."""


_UMASK: Final = SettingKind(
    suffix="",
    expected='octal digits from 0 to 777 in quotes, such as "022"',
    # A number may be meant as TOML's 0o22, or as the digits: only the digits say which.
    parse=lambda written: (
        int(written, 8)
        if isinstance(written, str) and re.fullmatch("0?[0-7]{1,3}", written)
        else None
    ),
    allows=lambda value: _is_whole(value) and 0 <= value <= UMASK_MAX,
    shown=lambda value: f"{value:03o}",
)

Seconds = Annotated[float, _SECONDS]
SecondsOrZero = Annotated[
    float,
    replace(
        _SECONDS,
        expected='a duration, such as "60s" or "0s"',
        allows=lambda value: _is_finite(value) and value >= 0,
    ),
]
_FLAG = SettingKind(
    suffix="",
    expected='"true" or "false"',
    parse=lambda written: {"true": True, "false": False}.get(str(written).lower(), written),
    allows=lambda value: isinstance(value, bool),
)
Bytes = Annotated[int, _BYTES]
BytesOrZero = Annotated[
    int,
    replace(
        _BYTES,
        expected='a size, such as "512KiB" or "0B"',
        allows=lambda value: _is_whole(value) and value >= 0,
    ),
]
BytesPerSecond = Annotated[int, _BYTES_PER_SECOND]
Count = Annotated[int, _COUNT]
Flag = Annotated[bool, _FLAG]
Share = Annotated[float, _SHARE]
Rack = Annotated[str, _RACK]
Racks = Annotated[tuple[tuple[str, str], ...], _RACKS]
Groups = Annotated[tuple[tuple[str, tuple[str, ...]], ...], _GROUPS]
Host = Annotated[str, _HOST]
File = Annotated[str, _FILE]
Command = Annotated[str, _COMMAND]
User = Annotated[str, _USER]
Text = Annotated[str, _TEXT]
Token = Annotated[str, TOKEN]
Umask = Annotated[int, _UMASK]
