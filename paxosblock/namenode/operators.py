"""The calls of operators that take several steps; `handlers.py` has those of others."""

from __future__ import annotations

import asyncio
from functools import partial

from paxosblock.api.care import (
    AdminStatus,
    Balance,
    BalanceStatus,
    Leaving,
    LeavingRequest,
    SetAdminState,
)
from paxosblock.api.encryption import (
    EncryptDirectory,
    EncryptionZone,
    EncryptionZones,
    RolledMasterKey,
    RollMasterKey,
    ZonesRequest,
)
from paxosblock.api.fsck_call import CheckedFiles, CheckFiles
from paxosblock.api.methods import Done
from paxosblock.api.quota import (
    CheckedQuotas,
    CheckQuotas,
    ListQuotas,
    Quotas,
    QuotaUsage,
    SetQuota,
)
from paxosblock.api.status import SafeModeAction, SafeModeRequest, SafeModeStatus
from paxosblock.api.user_tokens import (
    IssueToken,
    ListTokens,
    RevokeToken,
    TokenIssued,
    TokenList,
)
from paxosblock.errors import ConfigError, NotFoundError
from paxosblock.namenode.blocks.replication.fsck import check_slice
from paxosblock.namenode.catalog import quotas, zones
from paxosblock.namenode.catalog.changes import Decided
from paxosblock.namenode.catalog.draft import Draft, in_one
from paxosblock.namenode.catalog.namespace import Context, check_names_may_change
from paxosblock.namenode.catalog.node_records import Change, Known
from paxosblock.namenode.catalog.node_records import set_admin_state as decide
from paxosblock.namenode.catalog.permissions import ACTOR
from paxosblock.namenode.catalog.records import Zone
from paxosblock.namenode.name_node import NameNode
from paxosblock.net.port.caller import CALLER

WORK_MAX = 2000
"""The most names and blocks that one call looks at."""
FINDINGS_MAX = 1000
"""Findings after which one call ends."""
NODES_NAMED_MAX = 5
"""DataNodes that the error names if there is none of the name asked for."""


async def set_admin_state(node: NameNode, request: SetAdminState) -> Decided[AdminStatus]:
    """Let a DataNode leave, for good or for a while, or come back.

    Raises:
        NotFoundError: no DataNode has this id or address, or several have this address.
    """
    await node.take_admin_states()
    change = Change(_known(node, request.node), request.admin, request.for_s)
    done = await node.catalog.decide(AdminStatus, in_one(decide), change, once=request.once)
    await node.take_admin_states()
    node.leaving.changed()
    return done


async def safe_mode(node: NameNode, request: SafeModeRequest) -> SafeModeStatus:
    """Show, enter or leave safe mode."""
    match request.action:
        case SafeModeAction.GET:
            await node.catalog.view()  # raises where this NameNode does not lead any more
        case SafeModeAction.ENTER:
            await node.catalog.enter_safe_mode()
        case SafeModeAction.LEAVE:
            await node.catalog.leave_safe_mode()
            node.safe_mode.leave()
    return node.safe_mode.status(node.clock_s())


async def encrypt_directory(node: NameNode, request: EncryptDirectory) -> Decided[EncryptionZone]:
    """Make an empty directory an encryption zone.

    Raises:
        ConfigError: this NameNode has no master key, or cannot read it again: after its next start
            it would not have the zone's key.
        Others: as `zones.encrypt`.
    """
    await _refresh_master_keys(node)

    def decision(draft: Draft, request: EncryptDirectory, context: Context) -> EncryptionZone:
        check_names_may_change(draft)

        def wrapped(number: int) -> Zone:
            return node.zone_keys.made(number, context.now_ms)

        return zones.encrypt(draft, request, wrapped, context.actor)

    return await node.catalog.decide(EncryptionZone, in_one(decision), request, once=request.once)


async def roll_master_key(node: NameNode, request: RollMasterKey) -> Decided[RolledMasterKey]:
    """Wrap the keys of all zones with the first master key.

    Raises:
        ConfigError: this NameNode has none, or not the one that wraps a key now.
    """
    await _refresh_master_keys(node)

    def decision(draft: Draft, _: RollMasterKey, __: Context) -> RolledMasterKey:
        count = zones.roll(draft, node.zone_keys.wrapped_again)
        return RolledMasterKey(node.zone_keys.master, count)

    return await node.catalog.decide(RolledMasterKey, in_one(decision), request, once=request.once)


async def _refresh_master_keys(node: NameNode) -> None:
    """Read the master keys again. Raises ConfigError."""
    await node.zone_keys.refresh()
    if node.zone_keys.why:
        raise ConfigError(f"this NameNode has no master key: {node.zone_keys.why}")


async def set_quota(node: NameNode, request: SetQuota) -> Decided[QuotaUsage]:
    """Change how many names a directory may hold, and how much room its replicas may take.

    Raises:
        SafeModeError: an operator entered safe mode.
        Others: as `quotas.set_limits`.
    """

    def decide(draft: Draft, request: SetQuota, context: Context) -> QuotaUsage:
        check_names_may_change(draft)
        return quotas.set_limits(draft, request, context.actor)

    return await node.catalog.decide(QuotaUsage, in_one(decide), request, once=request.once)


async def list_quotas(node: NameNode, request: ListQuotas) -> Quotas:
    """Show the quota of a directory, or all of them."""
    return Quotas(await node.catalog.quotas(request.path, ACTOR.get()))


async def check_quotas(node: NameNode, request: CheckQuotas) -> CheckedQuotas:
    """Count again what is below the directories with quotas, and mend counters that are wrong."""
    return CheckedQuotas(await node.catalog.check_quotas(request.path, repair=request.repair))


async def encryption_zones(node: NameNode, _: ZonesRequest) -> EncryptionZones:
    """Show the encryption zones, and whether the master key can still be read."""
    keys = node.zone_keys
    await keys.refresh()
    return EncryptionZones(await node.catalog.zones(), keys.master, keys.why)


async def balance(node: NameNode, request: Balance) -> BalanceStatus:
    """Make the storages about equally full, as long as an operator's command asks for it."""
    await node.catalog.view()  # raises where this NameNode does not lead any more
    return node.balancer.ask(request)


async def leaving(node: NameNode, _: LeavingRequest) -> Leaving:
    """Show the DataNodes that are to leave, and the blocks that hold them up."""
    await node.catalog.view()  # raises where this NameNode does not lead any more
    return Leaving(node.leaving.status())


async def check_files(node: NameNode, request: CheckFiles) -> CheckedFiles:
    """Check some of the files below a path."""
    view, page, cursor = node.assessor.view(), CheckedFiles(), request.after
    assess = partial(node.monitor.need, view=view)
    while True:
        reads = await node.catalog.view()
        cursor = check_slice(reads, request.path, cursor, assess, page)
        if cursor is None or page.work >= WORK_MAX or len(page.findings) >= FINDINGS_MAX:
            break
        await asyncio.sleep(0)
    page.next, page.racks, page.safe_mode = cursor, view.racks, node.safe_mode.holds
    page.datanodes = len({place.node for place in view.places.values() if place.live})
    return page


async def issue_token(node: NameNode, request: IssueToken) -> TokenIssued:
    """Make a token of a user."""
    return await node.tokens.issue(request, CALLER.get(), ACTOR.get())


async def list_tokens(node: NameNode, request: ListTokens) -> TokenList:
    """Show the tokens of the user who asks; to a superuser those of all."""
    return await node.tokens.show(request, CALLER.get(), ACTOR.get())


async def revoke_token(node: NameNode, request: RevokeToken) -> Done:
    """Let no node believe a token any more."""
    return await node.tokens.revoke(request, CALLER.get(), ACTOR.get())


def _known(node: NameNode, written: str) -> Known:
    """Return the one DataNode that an operator named: registered, or known from before."""
    found = [
        Known(each.node, each.address, tuple(each.storages))
        for each in node.datanodes.named(written)
    ]
    found = found or [
        Known(name, record.address, record.storages)
        for name, record in node.datanodes.admin.records(node.clock_s())
        if written in (name, record.address)
    ]
    if len(found) == 1:
        return found[0]
    names = sorted(each.node for each in found or node.datanodes)
    some = ", ".join(names[:NODES_NAMED_MAX]) + (", ..." if len(names) > NODES_NAMED_MAX else "")
    why = "several DataNodes have this address" if found else "no such DataNode"
    raise NotFoundError(f"'{written}': {why}: {some or 'none is known'}", path=written)
