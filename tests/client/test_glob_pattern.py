"""Patterns of names: what Hadoop's GlobPattern (3.5) matches and refuses."""

from __future__ import annotations

import pytest

from paxosblock.client.names.glob_pattern import compiled, expanded, is_pattern, unescaped
from paxosblock.errors import InvalidRequestError

NAMES = (
    "a",
    "b",
    "ab",
    "a.txt",
    "b.txt",
    "axtxt",
    "a-b",
    "*",
    "a,b",
    "{a}",
    "[a]",
    "a\nb",
    "^",
    "]",
)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*", set(NAMES)),
        ("?", {"a", "b", "*", "^", "]"}),
        ("a?txt", {"a.txt", "axtxt"}),
        ("[a-b]", {"a", "b"}),
        ("[!a]", {"b", "*", "^", "]"}),
        ("[^a]", {"b", "*", "^", "]"}),
        ("[]]", {"]"}),
        ("[a-]?b", {"a-b", "a,b", "a\nb"}),
        ("{a,b}", {"a", "b"}),
        ("{a,b}.txt", {"a.txt", "b.txt"}),
        ("{a,{b,ab}}", {"a", "b", "ab"}),
        ("{,a}b", {"b", "ab"}),
        ("a,b", {"a,b"}),
        ("a.txt", {"a.txt"}),
        (r"\*", {"*"}),
        (r"\{a}", {"{a}"}),
        (r"\[a]", {"[a]"}),
        ("a}", set()),
        ("(a|b)+$", set()),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matched: set[str]) -> None:
    assert {name for name in NAMES if compiled(pattern).fullmatch(name)} == matched


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("{a", "Unclosed group at pos 2: `{a`"),
        ("[a", "Unclosed character class at pos 2: `[a`"),
        ("[]", "Unclosed character class at pos 2: `[]`"),
        ("a\\", "Escaped character missing"),
        ("[b-a]", "bad character range"),
    ],
)
def test_what_is_no_pattern_is_refused_in_the_words_of_hdfs(pattern: str, why: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        compiled(pattern)
    assert f"'{pattern}': Illegal file pattern: {why}" in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "patterns"),
    [
        ("/a/{b,c}", ["/a/{b,c}"]),
        ("/{a/b,c}/d", ["/a/b/d", "/c/d"]),
        ("/{a/{b,c},d}", ["/a/{b,c}", "/d"]),
        ("/{x,y}/{a/b,c}", ["/{x,y}/a/b", "/{x,y}/c"]),
        ("/{a/{b/c,d},e}", ["/a/b/c", "/a/d", "/e"]),
        (r"/\{a/b,c}", [r"/\{a/b,c}"]),
        ("/{a/b", ["/{a/b"]),
    ],
)
def test_braces_with_a_slash_are_several_patterns(pattern: str, patterns: list[str]) -> None:
    assert expanded(pattern) == patterns


def test_a_backslash_makes_a_name_of_a_pattern() -> None:
    assert unescaped(r"\*\\a") == r"*\a"
    assert is_pattern(r"\*")
    assert is_pattern("{a}")
    assert not is_pattern("/a,b!^")
