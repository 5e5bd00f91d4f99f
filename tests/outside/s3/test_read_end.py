"""The words with which versitygw says how a test ended."""

from __future__ import annotations

from tests.outside.s3.__main__ import read_end
from tests.outside.verdicts import FAILED, PASSED, SKIPPED, Verdict


def test_the_last_word_of_a_test_counts() -> None:
    run = "\x1b[36mRUN  \x1b[0mPutObject_one\n"
    assert read_end(f"{run}\x1b[32mPASS \x1b[0mPutObject_one\n\nRAN: 1\n") == Verdict(PASSED)
    failed = f"{run}\x1b[31mFAIL \x1b[0mPutObject_one: expected 1,\tinstead got 2\n"
    assert read_end(failed) == Verdict(FAILED, "expected 1, instead got 2")
    assert read_end(f"{run}SKIP PutObject_one: why\n") == Verdict(SKIPPED, "why")
    assert read_end("panic:\n a nil pointer") == Verdict(FAILED, "panic: a nil pointer")
