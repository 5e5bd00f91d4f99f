"""Files of a NameNode that a crash left half written."""

from __future__ import annotations

from pathlib import Path

from paxosblock.host.disk import OsDisk
from paxosblock.namenode.kv.files import draft_of, remove_drafts


class Renamed(OsDisk):
    """Another thread gives a draft its name once the folder has been listed."""

    def names(self, folder: Path) -> list[str]:
        found = super().names(folder)
        draft_of(folder / "joined").rename(folder / "joined")
        return found


def test_a_draft_that_becomes_whole_while_drafts_are_removed_stays(tmp_path: Path) -> None:
    for name in ("joined", "vote"):
        draft_of(tmp_path / name).write_text("half")
    remove_drafts(Renamed(), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["joined"]
