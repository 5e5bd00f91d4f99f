"""The question whether a block that was closed without a sync has reached stable storage."""

from __future__ import annotations

import asyncio

from paxosblock.api.datanode import Envelope
from paxosblock.api.namenode import GET_BLOCK, BlockMember, BlockRequest, BlockView
from paxosblock.client.session.backoff import Backoff
from paxosblock.client.session.shared_session import SharedSession
from paxosblock.client.writing.receipt import BlockReceipt
from paxosblock.errors import DeadlineError, PaxosBlockError
from paxosblock.protocol.messages import Read, ReadReply
from paxosblock.protocol.quorum import read_quorum
from paxosblock.protocol.types import BlockId, ReplicaState


async def finalized_on_disk(session: SharedSession, block: BlockId) -> BlockReceipt:
    """Wait until a majority of the block's members finalized it: that implies a sync (D5).

    Members that do not answer while a majority does are waited for only until they count as hung.

    Returns:
        The number of members that said so.

    Raises:
        DeadlineError: they did not within the client's `retry_for_s`.
    """
    backoff = Backoff(session.config.retry_for_s)
    while True:
        view = await session.namenodes.call(GET_BLOCK, BlockRequest(block))
        enough = read_quorum(len(view.members))
        finalized = await _count_finalized(session, view, enough)
        if finalized >= enough:
            return BlockReceipt(block, len(view.members), finalized)
        if backoff.exhausted:
            raise DeadlineError(
                f"block {block}: {finalized} of {len(view.members)} members have "
                "it on stable storage",
                block=block,
            )
        await backoff.pause()


async def _count_finalized(session: SharedSession, view: BlockView, enough: int) -> int:
    """Count the members that say they finalized the block. Wait for all, but no longer than a node
    that is not hung takes once `enough` said so.
    """
    asked = [asyncio.ensure_future(_is_finalized(session, view, each)) for each in view.members]
    try:
        await asyncio.wait(asked, timeout=session.config.hung_after_s)
        while True:
            waiting = [answer for answer in asked if not answer.done()]
            finalized = sum(answer.result() for answer in asked if answer.done())
            if finalized >= enough or not waiting:
                return finalized
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for answer in asked:
            answer.cancel()


async def _is_finalized(session: SharedSession, view: BlockView, member: BlockMember) -> bool:
    try:
        connection = await session.reading.get(member.address)
        read = Read(view.record.block)
        question = Envelope(member.storage, read, capability=member.capability)
        answer = await connection.ask(question, session.config.rpc_timeout_s)
    except PaxosBlockError:
        return False
    return isinstance(answer, ReadReply) and answer.registers.state is ReplicaState.FINALIZED
