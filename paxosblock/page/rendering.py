"""Makes text of the structs of `views`: HTML by templates, a piece at a time, and JSON."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from paxosblock.api.fsck_call import Finding
from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.status import VoteLine
from paxosblock.base.wording import counted, human_size, human_time, percent, visible

if TYPE_CHECKING:
    import jinja2

TURN_S: Final = 0.004
"""Seconds of rendering after which others get a turn."""
PIECES: Final = 64
"""Pieces of a template between two looks at the clock."""
HERE: Final = Path(__file__).parent


@cache
def _templates() -> jinja2.Environment:
    """Return the templates: all text in them is escaped, and no name in them is undefined.

    To import the library and to translate the templates takes a tenth of a second, which a node
    spends when the first person looks at its page, and in a thread.
    """
    import jinja2  # noqa: PLC0415 - as said above

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "shown": visible,
        "quoted": quoted,
        "size": human_size,
        "length": human_time,
        "percent": percent,
        "counted": counted,
        "when": when,
        "mode": mode,
        "by_file": by_file,
        "moment": moment,
        "done_in": done_in,
    }
    for name in made.list_templates():
        made.get_template(name)
    return made


def quoted(text: str) -> str:
    """Return text as it stands in the query of an address."""
    return quote(text.encode(errors="surrogatepass"), safe="/")


def when(seconds: float) -> str:
    """Return a time in UTC, as `datetime` of HTML reads it, too."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s"


def moment(line: VoteLine) -> str:
    """Return the time of a step in UTC, to the millisecond: many come in one second."""
    return f"{when(line.time_ms // 1000)[:-1]}.{line.time_ms % 1000:03d}Z"


def done_in(left: float, per_s: float) -> str:
    """Return when so much will be done at this pace, as the end of a sentence."""
    if left <= 0:
        return ""
    if per_s <= 0:
        return "; nothing was done in the last minute"
    return f"; done in about {human_time(left / per_s)} at the pace of the last minute"


def by_file(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return findings by the path of their file, in the order of the first of each."""
    found: dict[str, list[Finding]] = {}
    for each in findings:
        found.setdefault(each.path, []).append(each)
    return found


def mode(status: FileStatus) -> str:
    """Return kind and permission as `ls -l` does."""
    kind = stat.S_IFDIR if status.kind is Kind.DIRECTORY else stat.S_IFREG
    return stat.filemode(kind | status.permission)


async def html(template: str, values: Mapping[str, Any]) -> bytes:
    """Return a page; rendering gives way to others every `TURN_S`."""
    found = await asyncio.to_thread(_templates)
    made, pieces = bytearray(), iter(found.get_template(template).generate(**values))
    began_s = time.perf_counter()
    while some := list(islice(pieces, PIECES)):
        made += "".join(some).encode(errors="backslashreplace")
        if time.perf_counter() - began_s >= TURN_S:
            await asyncio.sleep(0)
            began_s = time.perf_counter()
    return bytes(made)


def json(page: msgspec.Struct) -> bytes:
    """Return a page for programs."""
    return msgspec.json.encode(page)


@cache
def static(name: str) -> bytes:
    """Return a file that stands beside the templates."""
    return (HERE / "static" / name).read_bytes()
