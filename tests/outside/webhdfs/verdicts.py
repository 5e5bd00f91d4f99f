"""Verdicts of a suite on a server, test by test, and the comparison of two servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of one test."""

    word: str
    why: str = ""


Verdicts = dict[str, Verdict]


def read_lines(file: Path) -> Verdicts:
    """Read what `WebHdfsSuites` wrote: verdict, test and reason, with tabs between them."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        word, test, why = line.split("\t", 2)
        found[test] = Verdict(word, why)
    return found


def read_junit(file: Path) -> Verdicts:
    """Read what pytest wrote with `--junitxml`."""
    found = {}
    for case in ElementTree.parse(file).iter("testcase"):
        test = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        ends = {child.tag: child.get("message", "") for child in case}
        if bad := ends.keys() & {"failure", "error"}:
            found[test] = Verdict(FAILED, ends[bad.pop()])
        else:
            found[test] = Verdict(SKIPPED if "skipped" in ends else PASSED)
    return found


def complaints(ours: Verdicts, theirs: Verdicts, on_purpose: Mapping[str, str]) -> Iterator[str]:
    """Say which tests pass at theirs and not at ours, but those that differ on purpose, and which
    of these do so no longer."""
    for test, verdict in sorted(theirs.items()):
        mine = ours.get(test, Verdict("missing"))
        differs = verdict.word == PASSED and mine.word != PASSED
        if differs and test not in on_purpose:
            yield f"{test}: {mine.word} here, passed there: {mine.why[:300]}"
        if not differs and test in on_purpose:
            yield f"{test}: is said to differ, but it is {mine.word} here, {verdict.word} there"
    for test in sorted(on_purpose.keys() - theirs.keys()):
        yield f"{test}: is said to differ, but there is none"


def counted(verdicts: Verdicts) -> str:
    """Say how many ended in each way."""
    counts = Counter(verdict.word for verdict in verdicts.values())
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
