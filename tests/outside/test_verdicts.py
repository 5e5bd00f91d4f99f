"""The comparison of two servers by a suite of others."""

from __future__ import annotations

from tests.outside.verdicts import FAILED, PASSED, SKIPPED, Verdict, complaints

THEIRS = {
    "A.both": Verdict(PASSED),
    "A.lost": Verdict(PASSED),
    "A.gone": Verdict(PASSED),
    "A.purpose": Verdict(PASSED),
    "A.mended": Verdict(PASSED),
    "A.neither": Verdict(FAILED),
    "A.skipped": Verdict(SKIPPED),
}
OURS = {
    "A.both": Verdict(PASSED),
    "A.lost": Verdict(FAILED, "other words"),
    "A.purpose": Verdict(FAILED),
    "A.mended": Verdict(PASSED),
    "A.neither": Verdict(FAILED),
    "A.skipped": Verdict(FAILED),
}


def test_what_passes_at_theirs_alone_is_told_unless_it_is_on_purpose_and_true() -> None:
    on_purpose = ["A.purpose", "A.mended", "A.none", "A.p*", "A.n*"]
    ours = {**OURS, "A.excused": Verdict("other words")}
    theirs = {**THEIRS, "A.excused": Verdict(PASSED)}
    assert list(complaints(ours, theirs, on_purpose, ["other words"])) == [
        "A.gone: missing here, passed there: ",
        "A.lost: failed here, passed there: other words",
        "A.mended: is said to differ, but it is passed here, passed there",
        "A.n*: is said to differ, but it is failed here, failed there",
        "A.none: is said to differ, but there is none",
    ]
