"""Races told as text: each script is replayed and must answer as it is written.

`REWRITE_SCRIPTS=1 pytest tests/scripts` writes the answers anew; read the difference before
committing it. A line that begins with `> ` is a command, `#` is a comment, the rest are answers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scripts.stage import Stage

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


def replayed(text: str) -> str:
    """The script with the answers that its commands give now."""
    stage = Stage()
    lines = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *stage.play(line[2:]).splitlines()]
        elif line.startswith("#") or not line:
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_race_goes_as_it_is_told(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    answered = replayed(text)
    if os.environ.get("REWRITE_SCRIPTS"):
        path.write_text(answered, encoding="utf-8")
        return
    assert answered == text


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 9
