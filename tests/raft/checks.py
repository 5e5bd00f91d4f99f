"""The rules that must hold at every moment of a simulation, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from paxosblock.namenode.raft.entry import Entry
from paxosblock.namenode.raft.log import RaftLog
from paxosblock.namenode.raft.raft_messages import AppendEntries, Message
from paxosblock.namenode.raft.raft_node import RaftNode


class ViolationError(Exception):
    """A rule of Raft does not hold."""


@dataclass(slots=True)
class Checker:
    """Watches elections, applied entries and logs; keeps count of what happened."""

    leaders: dict[int, str] = field(default_factory=dict)
    applied: dict[int, Entry] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)

    def violated(self, rule: str, what: str) -> None:
        self.found.append(f"{rule}: {what}")

    def check_message(self, node: RaftNode, sender: str, message: Message) -> None:
        """Only a leader sends entries: so this sees every election that matters."""
        if not isinstance(message, AppendEntries):
            return
        term = message.term
        leader = self.leaders.setdefault(term, sender)
        if leader != sender:
            self.violated("election safety", f"{leader} and {sender} lead in term {term}")
        elif self.counts["term"] < term:
            self.counts["term"] = term
            self.counts["elections"] += 1
            self._check_completeness(node.log, sender, term)

    def _check_completeness(self, log: RaftLog, leader: str, term: int) -> None:
        for index, entry in self.applied.items():
            if index > log.base_index and log.term_at(index) != entry.term:
                what = f"{leader}, leader of term {term}, lacks the applied entry {index}"
                self.violated("leader completeness", what)
                return

    def check_applied(self, member: str, index: int, entry: Entry) -> None:
        self.counts["applied"] += 1
        if self.applied.setdefault(index, entry) != entry:
            self.violated("state machine safety", f"{member} applies another entry at {index}")

    def check_logs(self, nodes: Iterable[RaftNode]) -> None:
        nodes = list(nodes)
        for number, one in enumerate(nodes):
            self._check_indexes(one)
            for other in nodes[:number]:
                self._check_matching(one.log, other.log)

    def _check_indexes(self, node: RaftNode) -> None:
        log, machine = node.log, node.machine
        ordered = machine.revision <= log.commit_index <= log.last_log_index
        if not ordered or log.base_index > machine.revision:
            what = f"{node}: applied {machine.revision}, committed {log.commit_index}"
            self.violated("order of indexes", what)
        known = range(log.base_index, log.last_log_index + 1)
        terms = [log.term_at(index) or 0 for index in known]
        if terms != sorted(terms):
            self.violated("order of terms", f"{node}: {terms}")

    def _check_matching(self, one: RaftLog, other: RaftLog) -> None:
        lowest = max(one.base_index, other.base_index)
        highest = min(one.last_log_index, other.last_log_index)
        matched = False
        for index in range(highest, lowest, -1):
            same = one.entry(index) == other.entry(index)
            matched = matched or one.term_at(index) == other.term_at(index)
            if matched and not same:
                self.violated("log matching", f"{one} and {other} differ at {index}")
                return
