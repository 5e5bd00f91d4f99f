"""A file that is replaced whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from paxosblock.host.whole_file import replace_file


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_it_has_its_mode_whatever_the_process_masks(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "address"
    before = os.umask(0o077 if mode == 0o644 else 0)
    try:
        replace_file(file, b"one", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert file.read_bytes() == b"one"


def test_the_old_one_is_there_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "address"
    replace_file(file, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"new", synced=True)
    assert file.read_bytes() == b"old"
    monkeypatch.undo()
    replace_file(file, b"newer", synced=True)
    assert file.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [file]
