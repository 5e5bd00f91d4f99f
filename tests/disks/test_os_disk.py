"""The real disk: folders that outlive a power cut, and their lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paxosblock.errors import ConfigError, StorageError
from paxosblock.host.disk import OsDisk, opened


def test_every_new_folder_on_the_way_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = [], os.fsync

    def noted(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    OsDisk().make_folder(tmp_path / "new" / "newer" / "volume")
    assert (tmp_path / "new" / "newer" / "volume").is_dir()
    assert synced == [tmp_path, tmp_path / "new", tmp_path / "new" / "newer"]
    OsDisk().make_folder(tmp_path / "new" / "newer")
    assert len(synced) == 3, "what is there needs nothing"


def test_a_file_where_a_folder_is_meant_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="File exists"):
        OsDisk().make_folder(tmp_path / "file")
    with pytest.raises(StorageError, match="Not a directory"):
        OsDisk().make_folder(tmp_path / "file" / "below")


def test_a_read_fills_memory_that_is_there_up_to_the_end_of_the_file(tmp_path: Path) -> None:
    disk, path, into = OsDisk(), tmp_path / "file", bytearray(b"before")
    path.write_bytes(b"0123456789")
    with opened(disk, path) as file:
        assert disk.read_into(file, memoryview(into)[1:5], 3) == 4
        assert into == b"b3456e"
        assert disk.read_into(file, memoryview(into), 8) == 2
        assert into == b"89456e"
        assert disk.read_into(file, memoryview(into), 10) == 0
    with pytest.raises(StorageError, match="cannot read: Bad file descriptor"):
        disk.read_into(file, memoryview(into), 0)


def test_a_lock_is_held_until_it_is_closed(tmp_path: Path) -> None:
    disk = OsDisk()
    held = disk.lock(tmp_path / "lock")
    with pytest.raises(ConfigError, match=f"{tmp_path} is in use by another process"):
        disk.lock(tmp_path / "lock")
    disk.close(held)
    disk.close(disk.lock(tmp_path / "lock"))
