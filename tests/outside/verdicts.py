"""Verdicts of a suite on a server, test by test, and the comparison of two servers."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Collection, Iterator
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


def complaints(
    ours: Verdicts,
    theirs: Verdicts,
    on_purpose: Collection[str],
    excused: Collection[str] = (),
) -> Iterator[str]:
    """Say which tests pass at theirs and not at ours, but those that differ on purpose, and which
    of these do so no longer.

    Args:
        on_purpose: names of tests; `Put*` are all that begin so, of which some must differ.
        excused: words of verdicts that are as good as "passed".
    """
    missing, good = Verdict("missing"), {PASSED, *excused}
    differing = {
        test
        for test, verdict in theirs.items()
        if verdict.word == PASSED and ours.get(test, missing).word not in good
    }
    named = {pattern: {*fnmatch.filter(theirs, pattern)} for pattern in on_purpose}
    for test in sorted(differing.difference(*named.values())):
        mine = ours.get(test, missing)
        yield f"{test}: {mine.word} here, passed there: {mine.why[:300]}"
    for pattern, tests in sorted(named.items()):
        if not tests:
            yield f"{pattern}: is said to differ, but there is none"
        elif not tests & differing:
            here, there = (
                {each.get(test, missing).word for test in tests} for each in (ours, theirs)
            )
            words = f"it is {' or '.join(sorted(here))} here, {' or '.join(sorted(there))} there"
            yield f"{pattern}: is said to differ, but {words}"


def counted(verdicts: Verdicts) -> str:
    """Say how many ended in each way."""
    counts = Counter(verdict.word for verdict in verdicts.values())
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
