"""`paxosblock explain`: the promises and votes of a block's replicas, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import click

from paxosblock.api.datanode import FIND_REPLICA, FindReplica, ReplicaSummary
from paxosblock.api.namenode import STAT, BlockMember, BlockRequest, PathRequest
from paxosblock.api.status import EXPLAIN, BlockExplanation, VoteLine
from paxosblock.cli.descriptions import shortfall
from paxosblock.cli.fs_names import matching
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.text import counted, table
from paxosblock.errors import PaxosBlockError
from paxosblock.net.calls.control import call
from paxosblock.net.port.access import Access
from paxosblock.protocol.replica_state import HdfsReplicaState
from paxosblock.protocol.types import NO_GENERATION, BlockId

_HEAD = (
    "storage",
    "node",
    "rack",
    "state",
    "promised",
    "accepted",
    "chunks",
    "bytes",
    "last chunk",
)
_TIMEOUT_S = 5.0
_TIMEOUT_NOT_LIVE_S = 0.5
"""Seconds for a DataNode that the NameNode has not heard from for a while: a file may have many
blocks there."""
_NOTHING = "it has no replica of this block"


@dataclass(frozen=True, slots=True)
class ReplicaLine:
    """A member of a block's config, and its DataNode's answer; `problem` if there is none."""

    member: BlockMember
    replica: ReplicaSummary | None
    problem: str


@dataclass(frozen=True, slots=True)
class BlockStory:
    """Everything that is known of a block, as `--json` prints it.

    `replication` is that of its file, None for a block without a file.
    """

    explanation: BlockExplanation
    replication: int | None
    replicas: tuple[ReplicaLine, ...]


@click.command(cls=Verb)
@click.argument("words", nargs=-1, required=True, metavar="PATH|BLOCK...")
@click.pass_obj
def explain(invocation: Invocation, words: tuple[str, ...]) -> None:
    """Show the blocks of a file, or one block by its number, replica by replica.

    \b
      $ paxosblock explain /logs/a.log
      block 7 of /logs/a.log: finalized (complete), 12 chunks, 6291456 bytes
        written in generation 0, length decided in generation 1
        storage  node        rack  state      promised  accepted  chunks  bytes    last chunk
        f7d8...  datanode-0  /r7   finalized  1         1         12      6291456  11 (524288 b ...)
        ...
        votes:
          time                 step       storage
          +0 ms  generation 1  finalized  f7d8...  length 12
          ...

    promised: the highest generation the replica was asked to obey; accepted: the generation its
    chunks were voted for in. A replica that is being copied is temporary. Below are the steps of
    the block's recoveries and of its finalization; those that led to a decision are kept for days.
    """

    def show(named: str) -> None:
        for block in _blocks(invocation, named):
            story = _story(invocation, block)
            if invocation.json:
                invocation.tell(story)
            else:
                for line in _lines(story):
                    invocation.say(line)

    def explain(word: str) -> None:
        named = [word] if _is_number(word) else matching(invocation, word)
        invocation.for_each(named, show)

    invocation.for_each(words, explain)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _blocks(invocation: Invocation, named: str) -> Iterator[BlockId]:
    if _is_number(named):
        yield BlockId(int(named))
        return
    is_empty = True
    for block in invocation.blocks(named):
        is_empty = False
        yield block.record.block
    if is_empty:
        raise UserError(named, "has no blocks: nothing was written to it yet")


def _story(invocation: Invocation, block: BlockId) -> BlockStory:
    explanation = invocation.call(EXPLAIN, BlockRequest(block))
    lines = _replica_lines(invocation.access, block, explanation.view.members)
    path = explanation.path
    wanted = invocation.call(STAT, PathRequest(path)).replication if path else None
    return BlockStory(explanation, wanted, lines)


def _replica_lines(
    access: Access, block: BlockId, members: tuple[BlockMember, ...]
) -> tuple[ReplicaLine, ...]:
    """Ask all members at once: several that hang cost the time of one."""
    ask = partial(_replica_line, block, access)
    with ThreadPoolExecutor(max(1, len(members))) as asking:
        return tuple(asking.map(ask, members))


def _replica_line(block: BlockId, access: Access, member: BlockMember) -> ReplicaLine:
    if not member.address:
        return ReplicaLine(member, None, "its DataNode is not known")
    try:
        wanted = FindReplica(block, member.storage, member.capability)
        timeout_s = _TIMEOUT_S if member.live else _TIMEOUT_NOT_LIVE_S
        found = call(member.address, FIND_REPLICA, wanted, timeout_s, access).replicas
    except PaxosBlockError as error:
        return ReplicaLine(member, None, str(error))
    return ReplicaLine(member, found[0], "") if found else ReplicaLine(member, None, _NOTHING)


def _lines(story: BlockStory) -> Iterator[str]:
    yield from _record_lines(story.explanation)
    has = len(story.explanation.view.record.members)
    if story.replication is not None and has < story.replication:
        yield f"  {shortfall(has, story.replication)}"
    rows = [_row(line) for line in story.replicas]
    if (target := story.explanation.copied_to) is not None:
        rows.append(_place(target, HdfsReplicaState.TEMPORARY.value))
    yield from (f"  {line}" for line in table(_HEAD, rows))
    history = story.explanation.history
    if history:
        yield "  votes:"
        yield from (f"    {line}" for line in history_lines(history))


def _record_lines(explanation: BlockExplanation) -> Iterator[str]:
    record = explanation.view.record
    of_file = f" of {explanation.path}" if explanation.path else ""
    state = f"{record.state.value} ({explanation.hdfs_state})"
    chunks = counted(record.length, "chunk")
    size = f", {chunks}, {record.size_bytes} bytes" if record.finalized else ""
    yield f"block {record.block}{of_file}: {state}{size}"
    decided = f", length decided in generation {record.finalized_generation}"
    cut = record.cut_generation
    yield (
        f"  written in generation {record.writer_generation}"
        + (decided if record.finalized else f", generation {record.generation} is the latest")
        + (f", truncated last in generation {cut}" if cut != NO_GENERATION else "")
    )


def _row(line: ReplicaLine) -> tuple[str, ...]:
    member, replica = line.member, line.replica
    if replica is None:
        return _place(member, line.problem)
    state, last = replica.state, replica.last
    return (
        member.storage,
        member.node,
        member.rack,
        replica.hdfs_state + (" (weak)" if state.registers.weak else ""),
        str(state.registers.max_generation),
        str(state.registers.accepted_generation),
        str(state.length),
        str(state.size_bytes),
        f"{last.index} ({last.size_bytes} bytes, crc {last.crc:08x})" if last else "-",
    )


def _place(member: BlockMember, state: str) -> tuple[str, ...]:
    return (member.storage, member.node, member.rack, state, "", "", "", "", "")


def history_lines(history: tuple[VoteLine, ...]) -> list[str]:
    """Return the steps of recoveries, times from the first one on."""
    rows = [
        (
            f"+{step.time_ms - history[0].time_ms} ms",
            f"generation {step.generation}",
            step.event,
            step.storage,
            step.detail,
        )
        for step in history
    ]
    return table(("time", "", "step", "storage", ""), rows)
