"""The call by which a writer goes on with its block after a member has failed."""

from __future__ import annotations

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import BlockView, Excluded
from paxosblock.base.replacement import Policy
from paxosblock.protocol.types import BlockId, Generation, StorageId, WriterId


class RebuildBlock(msgspec.Struct, frozen=True):
    """K3: rebuild `block` without the members that `failed`, for its writer of `generation`.

    A repeated request gets the config that was installed for the first one. `flushed` is as in
    `Policy`; the `excluded` DataNodes must not replace a member (as in `AddBlock`).
    """

    block: BlockId
    writer: WriterId
    generation: Generation
    failed: tuple[StorageId, ...]
    policy: Policy
    flushed: bool = False
    excluded: tuple[Excluded, ...] = ()


REBUILD_BLOCK = Method("rebuild_block", RebuildBlock, BlockView)
