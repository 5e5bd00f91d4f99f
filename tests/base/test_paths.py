"""Paths, and what is said of a text that is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base import paths
from paxosblock.errors import InvalidRequestError

NAMES = st.text(min_size=1, max_size=60).filter(
    lambda name: name not in (".", "..") and not set(name) & set("/:\0") and encodable(name)
)


def encodable(text: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in text)


@given(st.lists(NAMES, max_size=10).map(tuple))
def test_a_path_is_its_names_and_nothing_else(names: tuple[str, ...]) -> None:
    assert paths.split(paths.join(names)) == names


def test_the_root_has_no_names() -> None:
    assert paths.split("/") == ()
    assert paths.join(()) == "/"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "'': a path starts with '/'"),
        ("a/b", "'a/b': a path starts with '/'"),
        ("//a", "'//a': a name is empty (two '/' in a row, or one at the end)"),
        ("/a/", "'/a/': a name is empty (two '/' in a row, or one at the end)"),
        ("/a/./b", "'/a/./b': '.' is not a name here"),
        ("/a/..", "'/a/..': '..' is not a name here"),
        ("/a\0", "'/a\\x00': a name has no NUL byte"),
        ("/" + "ä" * 128, f"'/{'ä' * 128}': a name has at most 255 bytes"),
        ("/abcdefghi" * 801, f"'{('/abcdefghi' * 801)[:40]}...': a path has at most 8000 bytes"),
        ("/a" * 1001, f"'{('/a' * 1001)[:40]}...': a path has at most 1000 names"),
        ("a\nb", "'a\\nb': a path starts with '/'"),
        ("/\udc80", "'/\\udc80': a path is valid Unicode text"),
    ],
)
def test_what_is_no_path_is_refused_with_the_rule_it_breaks(path: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        paths.split(path)
    assert str(caught.value) == message


def test_the_longest_name_and_the_longest_path_are_fine() -> None:
    assert paths.split("/" + "a" * 255) == ("a" * 255,)
    assert len(paths.split("/abcdefghi" * 800)) == 800
    assert len(paths.split("/a" * 1000)) == 1000


def test_a_name_may_have_a_colon_as_keys_of_object_stores_have() -> None:
    """HDFS refuses it, because its paths may be URIs."""
    assert paths.split("/logs/2026-11-23T12:00:00") == ("logs", "2026-11-23T12:00:00")


@given(st.text(max_size=40))
def test_any_text_is_a_path_or_a_clear_error(text: str) -> None:
    try:
        names = paths.split(text)
    except InvalidRequestError:
        return
    assert paths.join(names) == text
