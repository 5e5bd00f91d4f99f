"""A control step of a small replica: a record of the log that replicas share.

No thread and no task takes part in it. `Block.begin` decides it and appends its record in one turn
of the event loop; `Block.end` adopts the new replica in another one, when the record is durable,
and only then the reply leaves. The chunk of a new replica may go along, as a second record.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from paxosblock.api.datanode import Control
from paxosblock.datanode.store.disk_format import Stored
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.net.wire import Flags, Header
from paxosblock.protocol.messages import Reply, Write
from paxosblock.protocol.register import Replica, Transition

_SYNC: Final = int(Flags.SYNC)


class SentChunk(NamedTuple):
    """A chunk as it came: its header, and the whole frame."""

    header: Header
    frame: memoryview


class RecordedRequest(NamedTuple):
    """A step that was begun: its records are said, but may not be durable yet."""

    request: Control
    step: Transition
    file: OpenFile
    """It has the records; once that is durable the step may end."""
    files: Stored
    replica: Replica
    """The replica from then on: that of `step`, or with the chunk that went along."""
    reply: Reply


def write_of(header: Header) -> Write:
    """Return the request to vote for the chunk with this header."""
    chunk = (header.index, header.payload_length, header.payload_crc)
    sync = header.flags & _SYNC != 0
    return Write(header.block, header.generation, *chunk, header.acknowledged, sync)
