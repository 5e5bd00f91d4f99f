"""Whether a block that was closed without a sync has reached stable storage."""

from __future__ import annotations

import asyncio

from paxosblock.client.backoff import Backoff
from paxosblock.client.receipt import BlockReceipt
from paxosblock.client.session import Session
from paxosblock.datanode_api import Ask
from paxosblock.errors import DeadlineError, PaxosBlockError
from paxosblock.namenode_api import GET_BLOCK, BlockRequest, BlockView, Member
from paxosblock.protocol.messages import Read
from paxosblock.protocol.quorum import read_quorum
from paxosblock.protocol.types import BlockId, ReplicaState


async def finalized_on_disk(session: Session, block: BlockId) -> BlockReceipt:
    """Wait until a majority of the block's members finalized it: that implies a sync (D5).

    Returns:
        How many of them said so.

    Raises:
        DeadlineError: they did not within the client's `retry_for`.
    """
    backoff = Backoff(session.config.retry_for_s)
    while True:
        view = await session.namenodes.call(GET_BLOCK, BlockRequest(block))
        answers = await asyncio.gather(
            *(_is_finalized(session, view, member) for member in view.members)
        )
        if sum(answers) >= read_quorum(len(view.members)):
            return BlockReceipt(block, len(view.members), sum(answers))
        if backoff.exhausted:
            raise DeadlineError(
                f"block {block}: {sum(answers)} of {len(view.members)} members have "
                "it on stable storage",
                block=block,
            )
        await backoff.pause()


async def _is_finalized(session: Session, view: BlockView, member: Member) -> bool:
    try:
        connection = await session.reading.get(member.address)
        ask = Ask(member.storage, read=Read(view.record.block))
        told = await connection.tell(ask, session.config.rpc_timeout_s)
    except PaxosBlockError:
        return False
    return told.read_reply is not None and told.read_reply.state is ReplicaState.FINALIZED
