"""New blocks of one short chunk each that are written together: a DataNode gets the chunks of many
in one message, and answers with all its votes. What goes wrong there is of each block alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from paxosblock.api.datanode import CreateAndWrite
from paxosblock.api.namenode import FinalizeBlock
from paxosblock.base.units import KIB
from paxosblock.client.session.watched import WritingConnections
from paxosblock.client.writing.block_writer import BlockFailed, BlockWriter
from paxosblock.client.writing.chunks import Chunk
from paxosblock.errors import PaxosBlockError, ProtocolError
from paxosblock.protocol.messages import Vote
from paxosblock.protocol.types import StorageId

MESSAGE_BYTES: Final = 768 * KIB
"""The frames in one message; capabilities and names come on top, and a message has 1 MiB at most
(`net/wire.py`)."""

_Sent = tuple[BlockWriter, CreateAndWrite]
_Errors = dict[tuple[BlockWriter, StorageId], PaxosBlockError]


async def written_together(
    connections: WritingConnections, wholes: Sequence[tuple[BlockWriter, Chunk]]
) -> list[FinalizeBlock | BlockFailed]:
    """W1 to W3 of all blocks (D1), each as by `BlockWriter.write_whole`.

    Returns:
        For each what ends it (W6), once all of its members voted; or why it takes no chunk.
    """
    asked = defaultdict[str, list[_Sent]](list)
    for block, chunk in wholes:
        for address, request in block.begin_whole(chunk):
            asked[address].append((block, request))
    errors: _Errors = {}
    sending = [(at, _send(connections, at, sent, errors)) for at, sent in asked.items()]
    for sent, error in zip(asked.values(), await connections.errors(sending), strict=True):
        if error is not None:
            for block, request in sent:
                errors.setdefault((block, request.storage), error)
    return [await _ended(block, errors) for block, _ in wholes]


async def _send(
    connections: WritingConnections, address: str, sent: Sequence[_Sent], errors: _Errors
) -> None:
    """Send chunks to a DataNode, and pass its votes on; `errors` gets what it refuses."""
    connection = await connections.get(address)
    for part in _messages(sent):
        requests = [request for _, request in part]
        votes = await connection.votes(requests, connections.votes.seconds)
        for (block, request), vote in zip(part, votes, strict=True):
            if isinstance(vote, Vote):
                block.on_vote(vote)
            else:
                errors[block, request.storage] = vote


def _messages(sent: Sequence[_Sent]) -> Iterator[list[_Sent]]:
    part, size_bytes = list[_Sent](), 0
    for each in sent:
        size_bytes += len(each[1].frame)
        if part and size_bytes > MESSAGE_BYTES:
            yield part
            part, size_bytes = [], len(each[1].frame)
        part.append(each)
    yield part


async def _ended(block: BlockWriter, errors: _Errors) -> FinalizeBlock | BlockFailed:
    voters = block.voters(1)
    missing = ProtocolError(f"no vote for the chunk of block {block.block} came")
    try:
        block.opened(
            [
                None if member in voters else errors.get((block, member), missing)
                for member in block.members
            ]
        )
        return await block.close_request()
    except BlockFailed as failure:
        return failure
    finally:
        block.release()
