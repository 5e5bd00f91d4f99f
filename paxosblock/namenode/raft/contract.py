"""The values that raftos' roles read and write, kept by our storage instead of raftos' files.

raftos asks a `FileStorage` for `term` and `voted_for`, and a `Log` for four counters. The rules of
Raft hold here whatever its roles ask for: a term never falls, a vote in a term is neither changed
nor forgotten (defects V1-V3), and both are durable in one record before the call returns (S3-S5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

from raftos import state
from raftos.storage import FileStorage, Log

from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.host.kernel_syncs import KernelSyncs
from paxosblock.namenode.kv.journal import Journal
from paxosblock.namenode.raft.log import RaftLog, Tail
from paxosblock.namenode.raft.raft_messages import (
    Message,
    Outdated,
    RequestVote,
    RequestVoteResponse,
)
from paxosblock.namenode.raft.vote_file import ElectionVote, VoteFile

Handler = TypeVar("Handler", bound=Callable[..., None])


def validate_term(handler: Handler) -> Handler:
    """Return a role's handler of a message behind raftos' check of the term.

    A message of a later term makes the role a follower first; one of an earlier term is refused.
    """
    checked: Handler = state.validate_term(handler)
    return checked


def message_of(written: Mapping[str, object]) -> Message:
    """Return what raftos' roles write as a dict: they ask for votes, vote, and refuse old terms."""
    match written:
        case {
            "type": "request_vote",
            "term": int(term),
            "candidate_id": str(candidate),
            "last_log_index": int(index),
            "last_log_term": int(last_term),
        }:
            return RequestVote(term, candidate, index, last_term)
        case {"type": "request_vote_response", "term": int(term), "vote_granted": bool(granted)}:
            return RequestVoteResponse(term, granted)
        case {"term": int(term), "success": False}:
            return Outdated(term)
    raise AssertionError(f"raftos' roles write no such message: {written}")


class StoppedError(Exception):
    """The disk refused while a role was acting; the member has stopped."""


class NotNowError(Exception):
    """The disk has no room for a term or vote. Nothing was changed: to the other members it is as
    if the message, or the election time-out, that asked for it had been lost."""


class HardState(FileStorage):
    """raftos' term and vote, in our vote file."""

    def __init__(self, votes: VoteFile, on_failure: Callable[[StorageError], None]) -> None:
        """Use `votes`; raftos' constructor is not called, as it would create files of its own."""
        self._votes = votes
        self._on_failure = on_failure

    @property
    def term(self) -> int:
        """Return the term; raftos' property asks for it by name, too slow for each message."""
        return self._votes.vote.term

    def __getitem__(self, name: str) -> int | str | None:
        vote = self._votes.vote
        match name:
            case "term":
                return vote.term
            case "voted_for":
                return vote.candidate
        raise KeyError(name)

    def __setitem__(self, name: str, value: int | str | None) -> None:
        self.update({name: value})

    @property
    def voted_for(self) -> str | None:
        """Return the candidate that this member voted for in its term; None if it did not vote."""
        return self._votes.vote.candidate

    def update(self, kwargs: Mapping[str, int | str | None]) -> None:
        """Adopt a newer term, or a vote in a term without a vote; durable on return.

        raftos' followers clear the vote whenever they start. Without a new term that changes
        nothing here, so nothing is written.
        """
        before = self._votes.vote
        term, candidate = kwargs.get("term", before.term), kwargs.get("voted_for")
        assert isinstance(term, int) and not isinstance(candidate, int)  # noqa: PT018 - for mypy
        vote = ElectionVote(term, candidate or (before.candidate if term == before.term else None))
        if vote == before:
            return
        try:
            # Blocks the loop for two syncs, on purpose: nothing may happen in between, and with
            # pre-votes a term changes only when a leader is lost.
            self._votes.write(vote)
        except NoSpaceError as error:
            raise NotNowError from error
        except StorageError as error:
            self._on_failure(error)
            raise StoppedError from error


class MemberLog(RaftLog, Log):
    """Our log with raftos' counters."""

    def __init__(
        self,
        tail: Tail,
        journal: Journal,
        executor: Executor,
        kernel: KernelSyncs | None,
        *,
        lend: Callable[[int], bool],
        commit_index: int,
        alone: bool,
    ) -> None:
        """Begin with the table's `commit_index`: all that the table holds is committed."""
        RaftLog.__init__(self, tail, journal, executor, kernel, lend, alone=alone)
        self.commit_index = commit_index
        self.next_index: dict[str, int] = {}
        self.match_index: dict[str, int] = {}

    @property
    def last_applied(self) -> int:
        """Return the commit index, so that raftos applies nothing: `RaftNode` does, because
        raftos' response handlers would apply one round trip late (L7) and fail (P5)."""
        return self.commit_index

    @property
    def last_log_term(self) -> int:
        term = self.term_at(self.last_log_index)
        assert term is not None, "the last entry is in memory, or is the base"
        return term
