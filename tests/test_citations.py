"""Texts point to what is there: files, links, and rules that code and tests cite by number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_house_rules import REPOSITORY, texts

PROTOCOL = REPOSITORY / "paxosblock/protocol/PROTOCOL.md"
AUDIT = REPOSITORY / "paxosblock/namenode/raft/AUDIT.md"
RAFT = ("paxosblock/namenode/raft/", "tests/raft/")
"""Numbers there are those of AUDIT.md: defects of raftos."""

RULE = re.compile(r"\b[KPDRWI]\d{1,2}\b")
SECTION = re.compile(r"PROTOCOL\.md,? (?:section )?(\d+)")
NAMED_FILE = re.compile(r"`(?:[\w-]+/)*([\w-]+\.(?:py|md|toml))`|\b([\w-]+\.md)\b")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)")

DOCUMENTS = tuple(path for path in texts() if path.suffix == ".md")
MADE_BY_A_NODE = {"config.toml"}


def shown(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def anchors(document: Path) -> set[str]:
    """Return what a link into a document may name, as GitHub derives it from the headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_a_link_leads_somewhere(document: Path) -> None:
    broken = []
    for path, anchor in LINK.findall(document.read_text(encoding="utf-8")):
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_a_file_that_a_text_names_is_in_the_repository() -> None:
    names = {path.name for path in texts()} | MADE_BY_A_NODE
    assert [
        f"{shown(path)}: {name}"
        for path in texts()
        for found in NAMED_FILE.findall(path.read_text(encoding="utf-8"))
        if (name := found[0] or found[1]) not in names
    ] == []


def test_each_row_of_who_may_do_what_and_of_attacks_names_tests_that_show_it() -> None:
    """The last column of the first table, and both halves of each attack."""
    text = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
    head, rest = text.split("## Users\n")
    attacks = rest.split("## Attacks that tests try\n")[1].split("\n## ")[0]
    cells = [
        cell
        for table, first in ((head, 3), (attacks, 1))
        for row in re.findall(r"^\| (?!---|who \||attack \|)(.+) \|$", table, re.MULTILINE)
        for cell in row.split(" | ")[first:]
    ]
    assert len(cells) > 60
    assert [cell for cell in cells if not re.search(r"test_\w+\.py|^the same$", cell)] == []


def test_each_module_of_the_namenode_is_on_the_map_of_its_room() -> None:
    """DESIGN.md, KV.md and RAFT.md begin with a list of their modules: it has all of them."""
    room = REPOSITORY / "paxosblock/namenode"
    maps = (room / "DESIGN.md", room / "KV.md", room / "raft/RAFT.md")
    named = set(re.findall(r"\b(\w+\.py)\b", "".join(map(Path.read_text, maps))))
    modules = {path.name for path in room.rglob("*.py")} - {"__init__.py"}
    assert modules - named == set()


def test_a_rule_that_is_cited_is_in_the_protocol() -> None:
    stated = set(RULE.findall(PROTOCOL.read_text(encoding="utf-8")))
    assert [
        f"{shown(path)}: {rule}"
        for path in texts()
        if path.suffix in {".py", ".md"} and not shown(path).startswith(RAFT)
        for rule in RULE.findall(path.read_text(encoding="utf-8"))
        if rule not in stated
    ] == []


def test_a_section_of_the_protocol_that_is_cited_is_there() -> None:
    sections = set(re.findall(r"^## (\d+)\.", PROTOCOL.read_text(encoding="utf-8"), re.MULTILINE))
    assert [
        f"{shown(path)}: {number}"
        for path in texts()
        for number in SECTION.findall(path.read_text(encoding="utf-8"))
        if number not in sections
    ] == []


def test_a_defect_of_raftos_that_is_cited_is_in_the_audit() -> None:
    defect = re.compile(r"\b[PSVLNT]\d{1,2}\b")
    known = set(defect.findall(AUDIT.read_text(encoding="utf-8")))
    assert [
        f"{shown(path)}: {number}"
        for path in texts()
        if path.suffix == ".py" and shown(path).startswith(RAFT)
        for number in defect.findall(path.read_text(encoding="utf-8"))
        if number not in known
    ] == []
