"""The rights of the client of one data stream, by the capabilities that it brought.

Each request brings one, and it is checked when it comes first. So one that ends in the midst of a
block costs nothing, and one that was forgotten is checked again. Chunks bring none: their block was
opened, or admitted, on the same stream before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from paxosblock.api.capability import Capability, Right, allow
from paxosblock.api.datanode import (
    Admit,
    BlockCall,
    CreateAndWrite,
    Envelope,
    FindChunk,
    FindReplica,
    ReadBytes,
    Watch,
)
from paxosblock.datanode.own_keys import OwnKeys
from paxosblock.errors import AccessDeniedError, NotReadyError
from paxosblock.net.wire import Header
from paxosblock.protocol.messages import Create, Read
from paxosblock.protocol.types import BlockId, Generation

KEPT_MAX: Final = 4096
"""Capabilities that are known of one stream, and open blocks before those are looked for that are
not open any more."""

_READ: Final = int(Right.READ)
_WRITE: Final = int(Right.WRITE)
_CREATE: Final = int(Right.CREATE | Right.WRITE)
_DECIDE: Final = int(Right.DECIDE)

_OF_MESSAGE: Final[dict[type, int]] = {Read: _READ, Create: _CREATE}

Request = BlockCall | FindChunk | FindReplica


def needed(request: Request) -> tuple[BlockId, int]:
    """Return the block that a request is about, and the rights that it takes."""
    if isinstance(request, ReadBytes):  # the most frequent one
        return request.block, _READ
    if isinstance(request, CreateAndWrite):
        return request.create.block, _CREATE
    if isinstance(request, Envelope):
        message = request.message
        return message.block, _OF_MESSAGE.get(type(message), _DECIDE)
    if isinstance(request, Watch):
        return request.read.block, _READ
    return request.block, _WRITE if isinstance(request, Admit) else _READ


class StreamRights:
    """The rights of one client."""

    def __init__(self, keys: OwnKeys, is_open: Callable[[BlockId], bool]) -> None:
        """`is_open` tells whether a replica here still takes chunks."""
        self._keys = keys
        self._is_open = is_open
        self._checked: OrderedDict[bytes, Capability] = OrderedDict()
        self._open_max = KEPT_MAX
        self.writes: dict[BlockId, Generation] = {}
        """The open blocks, each with the generation in which chunks of it may come."""

    def admit_known(self, request: Request) -> bool:
        """Admit a request at once; False if it is for `admit`, which waits for a key, or refuses
        this request alone: an error here would end the stream."""
        signed = request.capability
        try:
            self._admit(request, self._checked.get(signed) or self._keys.check(signed))
        except (AccessDeniedError, NotReadyError):
            return False
        return True

    async def admit(self, request: Request) -> None:
        """Admit a request.

        Raises:
            AccessDeniedError: its capability does not allow it.
            NotReadyError: this DataNode does not know the key yet.
        """
        known = self._checked.get(request.capability) or await self._keys.checked(
            request.capability
        )
        self._admit(request, known)

    def _admit(self, request: Request, known: Capability) -> None:
        block, rights = needed(request)
        if known.block != block or rights & ~known.rights:
            allow(known, block, rights)  # it says what is wrong
        if isinstance(request, CreateAndWrite):
            return  # the one message of its block
        if rights & _WRITE:
            self._keep_open(known)
        if request.capability not in self._checked:
            self._checked[request.capability] = known
            if len(self._checked) > KEPT_MAX:
                self._checked.popitem(last=False)

    def _keep_open(self, known: Capability) -> None:
        """Note a block that chunks may come of; the node can have so many open. Ended ones go."""
        if len(self.writes) >= self._open_max:
            for block in [each for each in self.writes if not self._is_open(each)]:
                del self.writes[block]
            self._open_max = max(KEPT_MAX, 2 * len(self.writes))
        self.writes[known.block] = known.generation

    def check_chunk(self, header: Header) -> None:
        """Check that a chunk may come: its block was opened or admitted in its generation.

        Raises:
            AccessDeniedError: it was not.
        """
        if self.writes.get(header.block) != header.generation:
            raise AccessDeniedError(
                f"block {header.block}: a chunk came, but no capability to write the block in"
                f" generation {header.generation} came on this stream before",
                block=header.block,
            )


async def admit_call(keys: OwnKeys | None, *requests: Envelope | FindChunk | FindReplica) -> None:
    """Admit a control call with one request or several, if there are keys to check it with.

    Raises:
        AccessDeniedError: the capability of one does not allow it.
        NotReadyError: this DataNode does not know the key yet.
    """
    if keys is None:
        return
    for request in requests:
        allow(await keys.checked(request.capability), *needed(request))
