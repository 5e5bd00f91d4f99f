"""Tables of records, as Markdown whose columns are aligned: median and range over the rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.plot import picture
from benchmarks.record import OURS, Host, Record, rounds_of
from benchmarks.stats import counted, median
from paxosblock.base.units import GIB, format_size

NONE: Final = ""


def report(records: Sequence[Record], pictures: Mapping[str, str]) -> str:
    """Return the tables of all cases; `pictures` has the link to the picture of a case."""
    parts = ["# Figures", "\n".join(_hosts(records))]
    for name, those in by_case(records).items():
        parts.append(f"## {name}")
        if shared := _shared(those):
            parts.append(f"{', '.join(shared)}.")
        if name in pictures:
            parts.append(f"![{name}]({pictures[name]})")
        parts.append("\n".join(_table(those)))
    return "\n\n".join(parts) + "\n"


def write(records: Sequence[Record], folder: Path) -> None:
    """Write README.md and the pictures that it shows.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures(records)
    for name, text in drawn.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
    links = {name: f"{name}.svg" for name in drawn}
    (folder / "README.md").write_text(report(records, links), encoding="utf-8")


def by_case(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of each case, in the order in which the cases came first."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.case, []).append(record)
    return found


def pictures(records: Sequence[Record]) -> dict[str, str]:
    """Return an SVG for each case that has growth curves, by case."""
    curves = {name: [each for each in those if each.at is not None]
              for name, those in by_case(records).items()}  # fmt: skip
    return {name: picture(name, those) for name, those in curves.items() if those}


def _hosts(records: Sequence[Record]) -> Iterable[str]:
    for host in dict.fromkeys(_told(record.host) for record in records):
        yield f"- {host}"


def _told(host: Host) -> str:
    built = {"python": f" ({host.python_build})"} if host.python_build else {}
    versions = ", ".join(
        f"{name} {number}{built.get(name, '')}" for name, number in host.versions.items()
    )
    return (
        f"{host.date}, {host.machine}, {host.cores} cores, {host.memory_bytes / GIB:.0f} GiB, "
        f"{host.kernel}, {host.file_system} {host.folder_device} ({host.mount_options}); "
        f"load {host.load:g} at the start; {versions}"
    )


def _facts(record: Record) -> list[str]:
    facts = [f"durability {record.durability}"] if record.durability else []
    if record.replicas is not None:
        facts.append(f"{record.replicas} replicas")
    if record.chunk_bytes is not None:
        facts.append(f"chunks of {format_size(record.chunk_bytes)}")
    if record.window is not None:
        facts.append(f"window {record.window}")
    if record.clients is not None:
        facts.append(counted(record.clients, "client"))
    return facts + [f"{name.replace('_', ' ')} {value}" for name, value in record.settings.items()]


def _shared(records: Sequence[Record]) -> list[str]:
    """Return the facts that are the same for all."""
    return [fact for fact in _facts(records[0]) if all(fact in _facts(each) for each in records)]


def _table(records: Sequence[Record]) -> list[str]:
    """Return the rows of one case; columns that nobody fills are left out."""
    shared = set(_shared(records))
    figures = rounds_of(records)
    ours = {
        (what, unit, at): median([each.value for each in rounds])
        for (_, what, unit, side, at), rounds in figures.items()
        if side == OURS
    }
    rows = [
        {
            "what": _label(rounds[0], shared),
            "side": side if side != OURS or len({each.side for each in records}) > 1 else NONE,
            "median": f"{figure(median([each.value for each in rounds]))} {unit}",
            "range": _range([each.value for each in rounds]),
            "rounds": str(len(rounds)),
            "limit": _middle([each.limit for each in rounds if each.limit is not None]),
            "of the limit": _ratio([each.ratio for each in rounds if each.ratio is not None]),
            "of ours": _of_ours(rounds, side, ours.get((what, unit, at))),
            "goal": figure(rounds[0].goal) if rounds[0].goal is not None else NONE,
            "processor": _processor(rounds),
        }
        for (_, what, unit, side, at), rounds in figures.items()
    ]
    return _aligned(rows)


def _label(record: Record, shared: set[str]) -> str:
    facts = [fact for fact in _facts(record) if fact not in shared and fact not in record.what]
    place = f", {figure(record.at)} {record.at_unit}" if record.at is not None else ""
    return record.what + place + (f" ({', '.join(facts)})" if facts else "")


def _of_ours(rounds: Sequence[Record], side: str, ours: float | None) -> str:
    if side == OURS or not ours:
        return NONE
    return figure(median([each.value for each in rounds]) / ours)


def figure(value: float) -> str:
    """Return a number with three digits, or with all before its point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _middle(values: Sequence[float]) -> str:
    return figure(median(values)) if values else NONE


def _range(values: Sequence[float]) -> str:
    return f"{figure(min(values))} - {figure(max(values))}" if len(values) > 1 else NONE


def _ratio(values: Sequence[float]) -> str:
    if not values:
        return NONE
    spread = f" ({_range(values)})" if len(values) > 1 else ""
    return figure(median(values)) + spread


def _processor(rounds: Sequence[Record]) -> str:
    """Return the processor time of each role, medians, with the unit that suits it."""
    roles = dict.fromkeys(role for each in rounds for role in each.processor_s)
    spent = {
        role: median([each.processor_s[role] for each in rounds if role in each.processor_s])
        for role in roles
    }
    per = rounds[0].per
    scale, unit = (1.0, "s") if per in ("GiB", "step") else (1e6, "us")
    told = ", ".join(f"{role} {figure(used * scale)} {unit}" for role, used in spent.items())
    return f"{told} per {per}" if told else NONE


def _aligned(rows: Sequence[Mapping[str, str]]) -> list[str]:
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}

    def line(cells: Mapping[str, str]) -> str:
        return "| " + " | ".join(cells[name].ljust(widths[name]) for name in names) + " |"

    rule = "|" + "|".join("-" * (widths[name] + 2) for name in names) + "|"
    return [line({name: name for name in names}), rule, *map(line, rows)]
