"""Text for people."""

from __future__ import annotations

import sys

from paxosblock.base.wording import visible


def test_what_moves_a_terminal_or_turns_the_writing_is_made_visible_and_nothing_else() -> None:
    letters = map(chr, range(sys.maxunicode + 1))
    changed = {letter for letter in letters if visible(letter) != letter}
    turned = {*map(chr, (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)))}
    assert changed == {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *turned}
    assert visible("a\nb\u202ec d\xa0\ud800") == "a\\nb\\u202ec d\xa0\ud800"
