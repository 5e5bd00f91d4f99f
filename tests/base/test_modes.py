"""Modes as `hdfs dfs -chmod` reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.modes import PERMISSION_MAX, Mode

BITS = st.integers(0, PERMISSION_MAX)


@pytest.mark.parametrize(
    ("written", "before", "directory", "after"),
    [
        ("755", 0o1600, False, 0o755),
        ("0755", 0o1600, False, 0o755),
        ("1777", 0, True, 0o1777),
        ("+644", 0o777, False, 0o644),
        (" 644 ", 0, False, 0o644),
        ("u+x", 0o644, False, 0o744),
        ("go-rwx", 0o777, True, 0o700),
        ("a=r", 0o1777, True, 0o444),
        ("=r", 0o333, False, 0o444),
        ("u=rw,g=r,o-rwx", 0o777, False, 0o640),
        ("u=rw, g=r", 0o777, False, 0o647),
        ("+X", 0o644, False, 0o644),
        ("+X", 0o744, False, 0o755),
        ("+X", 0o644, True, 0o755),
        ("g=rX", 0o644, False, 0o644),
        ("g=rX", 0o654, False, 0o654),
        ("-X", 0o755, False, 0o644),
        ("o+t", 0o777, True, 0o1777),
        ("+t", 0o755, True, 0o1755),
        ("-t", 0o1755, True, 0o755),
        ("g+t", 0o755, True, 0o755),  # HDFS's sticky bit is one of the others
        ("o=r", 0o1755, True, 0o754),
        ("u+r,u+w", 0, False, 0o200),  # of two clauses for one class the last counts, as in HDFS
        ("u+-r", 0o777, False, 0o377),
        ("u+r,", 0, False, 0o400),
    ],
)
def test_a_mode_is_applied_as_hdfs_applies_it(
    written: str, before: int, directory: bool, after: int
) -> None:
    assert oct(Mode(written).applied(before, directory=directory)) == oct(after)


@pytest.mark.parametrize(
    "written", ["", "u", "u+", "77", "888", "2777", "07777", "u+r g+w", "u+s", "rwx", "u+r,,z"]
)
def test_anything_else_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is no mode"):
        Mode(written)


@given(BITS, BITS, st.booleans())
def test_an_octal_mode_is_what_is_there_afterwards(
    wanted: int, before: int, directory: bool
) -> None:
    assert Mode(f"{wanted:04o}").applied(before, directory=directory) == wanted


@given(
    BITS,
    st.booleans(),
    st.dictionaries(
        st.sampled_from("ugo"),
        st.tuples(st.sampled_from("+-="), st.sets(st.sampled_from("rwx"), min_size=1)),
        min_size=1,
    ),
)
def test_clauses_change_what_they_name_and_nothing_else(
    before: int, directory: bool, clauses: dict[str, tuple[str, set[str]]]
) -> None:
    written = ",".join(who + how + "".join(what) for who, (how, what) in clauses.items())
    after = Mode(written).applied(before, directory=directory)
    for who, shift in (("u", 6), ("g", 3), ("o", 0)):
        there, made = before >> shift & 7, after >> shift & 7
        how, what = clauses.get(who, ("+", set()))
        for letter, bit in (("r", 4), ("w", 2), ("x", 1)):
            kept = bool(there & bit) and how != "="
            assert bool(made & bit) == (kept if letter not in what else how != "-")
