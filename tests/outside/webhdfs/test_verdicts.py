"""The comparison of two servers of WebHDFS."""

from __future__ import annotations

from tests.outside.webhdfs.verdicts import FAILED, PASSED, SKIPPED, Verdict, complaints

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


def test_what_passes_at_hdfs_alone_is_told_unless_it_is_on_purpose_and_true() -> None:
    on_purpose = {"A.purpose": "why", "A.mended": "why", "A.none": "why"}
    assert list(complaints(OURS, THEIRS, on_purpose)) == [
        "A.gone: missing here, passed there: ",
        "A.lost: failed here, passed there: other words",
        "A.mended: is said to differ, but it is passed here, passed there",
        "A.none: is said to differ, but there is none",
    ]
