"""A journal that lost what had been durable is told from one that was torn while it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.errors import CorruptionError
from paxosblock.host.disk import OsDisk
from paxosblock.journal.durable_mark import read_mark
from paxosblock.journal.record_log import MARK_NAME
from paxosblock.journal.segment import HEADER_BYTES
from paxosblock.namenode.kv.journal import FORMAT, Journal
from tests.journal.records import begun_journal, entries_in

SEGMENT_BYTES = 400
ENTRIES = 40


def indexes_in(folder: Path) -> list[int]:
    return [index for index, _ in entries_in(folder)]


def marked(folder: Path) -> int | None:
    """Return the last entry that the mark knows to be durable; None: there is no mark."""
    mark = read_mark(OsDisk(), folder / MARK_NAME, FORMAT)
    return None if mark is None else mark.highest


def killed(folder: Path) -> list[Path]:
    """Append entries one by one, each durable, and end as a killed process does."""
    journal = begun_journal(folder, SEGMENT_BYTES)
    for index in range(1, ENTRIES + 1):
        journal.append([b"entry %02d" % index])
    segments = sorted(folder.glob("journal-*"))
    assert len(segments) > 3
    return segments


def test_the_mark_follows_every_batch(tmp_path: Path) -> None:
    journal = begun_journal(tmp_path, SEGMENT_BYTES)
    for count in range(1, ENTRIES):
        journal.append([b"one", b"two"])
        assert marked(tmp_path) == 2 * count
    journal.close()


def test_a_journal_cut_short_anywhere_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    *_, last = killed(tmp_path)
    whole = last.read_bytes()
    for size in range(HEADER_BYTES, len(whole)):  # a header is never torn
        last.write_bytes(whole[:size])
        with pytest.raises(
            CorruptionError, match=rf"^{last} is damaged at .* to {ENTRIES}, which had been"
        ):
            indexes_in(tmp_path)
        assert last.read_bytes() == whole[:size]
    last.write_bytes(whole)
    assert indexes_in(tmp_path) == list(range(1, ENTRIES + 1))


def test_a_journal_without_its_last_segments_is_refused(tmp_path: Path) -> None:
    for segment in reversed(killed(tmp_path)):
        segment.unlink()
        with pytest.raises(CorruptionError, match="missing"):
            indexes_in(tmp_path)


def test_what_is_before_the_segment_that_is_needed_is_not_read_nor_missed(tmp_path: Path) -> None:
    """The owner says which one that is by the first entry of each; all behind it must be whole."""
    first, second, third, *_ = killed(tmp_path)
    needed = int(third.name[-20:])

    def read() -> list[int]:
        journal = Journal(OsDisk(), tmp_path, SEGMENT_BYTES)
        needs = journal.replay(lambda entry: entry == b"entry %02d" % needed)
        try:
            return [index for index, _ in needs]
        finally:
            journal.log.close()

    whole = {path: path.read_bytes() for path in (first, second, third)}
    for victim, data in whole.items():
        victim.write_bytes(data[: HEADER_BYTES + 60] + bytes(len(data) - HEADER_BYTES - 60))
        with pytest.raises(CorruptionError, match=f"^{victim} is damaged"):
            indexes_in(tmp_path)
        if victim == third:
            with pytest.raises(CorruptionError, match=f"^{victim} is damaged"):
                read()
        else:
            assert read() == list(range(needed, ENTRIES + 1))
        victim.write_bytes(data)
    first.unlink()
    assert read() == list(range(needed, ENTRIES + 1))


def test_what_nobody_was_told_of_is_cut_off_as_before(tmp_path: Path) -> None:
    *_, last = killed(tmp_path)
    whole = last.read_bytes()
    last.write_bytes(whole + whole[HEADER_BYTES : HEADER_BYTES + 32])
    assert indexes_in(tmp_path) == list(range(1, ENTRIES + 1))
    assert last.read_bytes().startswith(whole), "nothing of a segment is changed any more"


@pytest.mark.parametrize("damage", ["removed", "emptied", "torn", "garbled"])
def test_a_folder_without_a_mark_that_checks_opens_and_gets_one(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As an older version leaves it, or a power cut while the mark was written."""
    killed(tmp_path)
    file = tmp_path / MARK_NAME
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
    assert marked(tmp_path) is None
    assert (f"{file}: does not match its checksum" in caplog.text) == (damage != "removed")
    assert indexes_in(tmp_path) == list(range(1, ENTRIES + 1))
    begun_journal(tmp_path, SEGMENT_BYTES).close()
    assert marked(tmp_path) == ENTRIES


def test_the_bytes_of_a_mark(tmp_path: Path) -> None:
    """Magic, segment, offset, the last entry, checksum."""
    journal = Journal(OsDisk(), tmp_path, SEGMENT_BYTES)
    journal.next_index = 0x1234
    journal.begin()
    journal.append([b"one"])
    journal.close()
    data = (tmp_path / MARK_NAME).read_bytes()
    (segment,) = tmp_path.glob("journal-*")
    numbers = (0x1234, segment.stat().st_size, 0x1234)
    assert data[:-4] == b"PBKMARK2" + b"".join(each.to_bytes(8, "little") for each in numbers)
    assert len(data) == 36
