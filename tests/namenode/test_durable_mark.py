"""A journal that lost what had been durable is told from one that was torn while it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.errors import CorruptionError
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.kv import journal_watermark
from paxosblock.namenode.kv.journal import Journal, replay
from paxosblock.namenode.kv.journal_watermark import JournalWatermark, read_mark

SEGMENT_BYTES = 400
ENTRIES = 40


def entries_in(folder: Path, after: int = 0) -> list[int]:
    return [index for index, _ in replay(OsDisk(), folder, after)]


def killed(folder: Path) -> list[Path]:
    """Append entries one by one, each durable, and end as a killed process does."""
    journal = Journal(OsDisk(), folder, 1, SEGMENT_BYTES)
    for _ in range(ENTRIES):
        journal.append([b"some bytes"])
    segments = sorted(folder.glob("journal-*"))
    assert len(segments) > 3
    return segments


def test_the_mark_follows_every_batch(tmp_path: Path) -> None:
    journal = Journal(OsDisk(), tmp_path, 1, SEGMENT_BYTES)
    for count in range(1, ENTRIES):
        journal.append([b"one", b"two"])
        assert read_mark(OsDisk(), tmp_path) == 2 * count
    journal.close()


def test_a_journal_cut_short_anywhere_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    *_, last = killed(tmp_path)
    whole = last.read_bytes()
    for size in range(28, len(whole)):  # a header is never torn
        last.write_bytes(whole[:size])
        with pytest.raises(CorruptionError, match=rf"^{last}: cut short .* to {ENTRIES}, are miss"):
            entries_in(tmp_path)
        assert last.read_bytes() == whole[:size]
    last.write_bytes(whole)
    assert entries_in(tmp_path) == list(range(1, ENTRIES + 1))


def test_a_journal_without_its_last_segments_is_refused(tmp_path: Path) -> None:
    for segment in reversed(killed(tmp_path)):
        segment.unlink()
        with pytest.raises(CorruptionError, match="missing"):
            entries_in(tmp_path)


def test_entries_that_a_snapshot_holds_are_not_missed(tmp_path: Path) -> None:
    *_, last = killed(tmp_path)
    last.write_bytes(last.read_bytes()[:-1])
    assert entries_in(tmp_path, after=ENTRIES) == []
    with pytest.raises(CorruptionError, match="1 entries that had been durable"):
        entries_in(tmp_path, after=ENTRIES - 2)


def test_what_nobody_was_told_of_is_cut_off_as_before(tmp_path: Path) -> None:
    *_, last = killed(tmp_path)
    whole = last.read_bytes()
    last.write_bytes(whole + whole[28:60])
    assert entries_in(tmp_path) == list(range(1, ENTRIES + 1))
    assert last.read_bytes() == whole


@pytest.mark.parametrize("damage", ["removed", "emptied", "torn", "garbled"])
def test_a_folder_without_a_mark_that_checks_opens_and_gets_one(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As an older version leaves it, or a power cut while the mark was written."""
    killed(tmp_path)
    file = tmp_path / journal_watermark.NAME
    data = file.read_bytes()
    match damage:
        case "removed":
            file.unlink()
        case "emptied":
            file.write_bytes(b"")
        case "torn":
            file.write_bytes(data[:12])
        case _:
            file.write_bytes(data[:10] + bytes((data[10] ^ 4,)) + data[11:])
    assert read_mark(OsDisk(), tmp_path) == 0
    assert (f"{file}: does not match its checksum" in caplog.text) == (damage != "removed")
    assert entries_in(tmp_path) == list(range(1, ENTRIES + 1))
    Journal(OsDisk(), tmp_path, ENTRIES + 1, SEGMENT_BYTES).close()
    assert read_mark(OsDisk(), tmp_path) == ENTRIES


def test_the_bytes_of_a_mark(tmp_path: Path) -> None:
    JournalWatermark(OsDisk(), tmp_path, 0x1234).close()
    expected = bytes.fromhex("50424b4d 41524b31  00000000 00001234")
    assert (tmp_path / journal_watermark.NAME).read_bytes()[:16] == expected
    assert len((tmp_path / journal_watermark.NAME).read_bytes()) == 20
