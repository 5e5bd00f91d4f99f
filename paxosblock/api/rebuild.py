"""The call by which the writer of a block goes on with it when a member fails."""

from __future__ import annotations

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import BlockView, Excluded
from paxosblock.protocol.types import BlockId, Generation, StorageId, WriterId
from paxosblock.replacement import Policy


class RebuildBlock(msgspec.Struct, frozen=True):
    """K3: rebuild `block` without the members that `failed`, for its writer of `generation`.

    A repeated request gets the config that was installed for the first. `flushed` is as in
    `Policy`; `excluded` as in `AddBlock`: DataNodes that are not to take the place of others.
    """

    block: BlockId
    writer: WriterId
    generation: Generation
    failed: tuple[StorageId, ...]
    policy: Policy
    flushed: bool = False
    excluded: tuple[Excluded, ...] = ()


REBUILD_BLOCK = Method("rebuild_block", RebuildBlock, BlockView)
