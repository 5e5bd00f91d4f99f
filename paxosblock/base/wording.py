"""Numbers and names as people read them, on a terminal and on the status page."""

from __future__ import annotations

from typing import Final

_UNITS: Final = "KMGTPE"
LEAST_SHARE: Final = 0.001
"""Of less people do not say how much it is."""
_CONTROL: Final = (*range(0x20), *range(0x7F, 0xA0))
_ORDERS: Final = (0x61C, *range(0x200E, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the order of those beside them, or begin a line: "exe.txt" may be "txt.exe".
"""
_VISIBLE: Final = {number: ascii(chr(number))[1:-1] for number in (*_CONTROL, *_ORDERS)}


def visible(text: str) -> str:
    """Return a line as a person may see it: control characters in a name, which could move a
    terminal's cursor, pass for another line or turn what stands beside them, stand as `\\n`,
    `\\x1b`, `\\u202e` and so on."""
    # Each of them is one that Python does not print; to translate takes ten times as long.
    return text if text.isprintable() else text.translate(_VISIBLE)


def human_size(size_bytes: int) -> str:
    """Return a size as hdfs prints it: "512", "1.5 K", "256 M"; "1.0 K" is not quite 1 K."""
    if size_bytes < 1024:
        return str(size_bytes)
    power = min((size_bytes.bit_length() - 1) // 10, len(_UNITS))
    if size_bytes % 1024**power == 0:
        return f"{size_bytes // 1024**power} {_UNITS[power - 1]}"
    tenths = _tenths(size_bytes, power)
    if tenths >= 10240 and power < len(_UNITS):
        power += 1
        tenths = _tenths(size_bytes, power)
    return f"{tenths // 10}.{tenths % 10} {_UNITS[power - 1]}"


def _tenths(size_bytes: int, power: int) -> int:
    """Return tenths of a unit, rounded half up as Java does."""
    unit = 1 << 10 * power
    return (20 * size_bytes + unit) // (2 * unit)


def binary_size(size_bytes: int) -> str:
    """Return a size as hdfs prints it in what it says of quotas: "512 B", "1.50 KB", "256 MB"."""
    power = min(max(size_bytes.bit_length() - 1, 0) // 10, len(_UNITS))
    if not power:
        return f"{size_bytes} B"
    whole, rest = divmod(size_bytes, 1024**power)
    number = f"{size_bytes / 1024**power:.2f}" if rest else str(whole)
    if number == "1024.00" and power < len(_UNITS):
        number, power = "1.00", power + 1
    return f"{number} {_UNITS[power - 1]}B"


def percent(share: float) -> str:
    """Return a share as people say it: "61 %", "4.6 %", "less than 0.1 %"."""
    if 0 < share < LEAST_SHARE:
        return "less than 0.1 %"
    return f"{share * 100:.1f}".removesuffix(".0") + " %"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Count things: "1 block", "2 blocks", "0 entries" (where the plural is not with -s)."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def human_time(seconds: float) -> str:
    """Return a length of time in its largest two units: "0.4 s", "12 s", "3 min 5 s", "2 d 4 h"."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}".removesuffix(".0") + " s"
    left, parts = int(seconds), list[str]()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
        elif parts:
            break
        left %= size
    return " ".join(parts)
