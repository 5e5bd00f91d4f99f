"""The calls of a NameNode. A row of `CALLS` names a call's request, its check, who answers it and
how, and what the log says of it. Routing, log and counts follow from the rows.

A call is `decided` (a function decides it on a draft, which is committed), `shown` (a function
reads it off a linearizable view, at any NameNode), or `handled` (it takes several steps:
`handlers.py`).
"""

from __future__ import annotations

import enum
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

from msgspec import Raw
from msgspec.structs import astuple

from paxosblock.api import (
    care,
    encryption,
    file_pages,
    fsck_call,
    insight,
    lease_call,
    quota,
    rebuild,
    reports,
    status,
    user_tokens,
)
from paxosblock.api import namenode as api
from paxosblock.api.methods import Method, Once
from paxosblock.api.ownership import (
    CHANGE_ACL,
    CHECK_ACCESS,
    GET_ACL_STATUS,
    SET_OWNER,
    SET_PERMISSION,
    SET_TIMES,
)
from paxosblock.api.path_attributes import GET_ATTRIBUTES, SET_ATTRIBUTES
from paxosblock.api.snapshot_calls import (
    CREATE_SNAPSHOT,
    DELETE_SNAPSHOT,
    DIFF_SNAPSHOTS,
    KEPT_ROOM,
    LIST_SNAPSHOTS,
    RENAME_SNAPSHOT,
    SNAPSHOT_DIRECTORY,
    UNDELETE,
)
from paxosblock.api.subtree import LIST_KEYS, LIST_SUBTREE, SUM_SUBTREE
from paxosblock.api.transaction import Operation
from paxosblock.api.user_tokens import TokenRight
from paxosblock.api.watching import WATCH
from paxosblock.base.durations import BOUNDS_S, Durations
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.base.paths import split
from paxosblock.errors import UnavailableError
from paxosblock.host.logs import facts, log_event
from paxosblock.host.metrics import NodeMetrics
from paxosblock.namenode import audit, checks, handlers, operators, people, subtrees
from paxosblock.namenode.audit import AUDIT_LOG, Deed, Deeds, DeedsOf, of_block
from paxosblock.namenode.catalog import (
    attributes,
    history_window,
    keys,
    namespace,
    owners,
    snapshot_changes,
    snapshots,
    transactions,
    tree,
)
from paxosblock.namenode.catalog.changes import Decided
from paxosblock.namenode.catalog.concat import concat
from paxosblock.namenode.catalog.draft import Draft, Slices, in_one
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import ACTOR, ITSELF, Actor
from paxosblock.namenode.kv.interface import View
from paxosblock.namenode.name_node import NameNode
from paxosblock.namenode.rights import (
    May,
    of_block_reader,
    of_block_writer,
    of_superuser,
    of_writer,
    of_writers,
)
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.port.caller import CALLER, HERE, UNTOLD, CallerRole
from paxosblock.net.port.node_roles import UNPROVEN, Roles

DEEDS_TOLD: Final = 10
"""Changes of a transaction that the log names."""
LIST_LIMIT: Final = 1000
"""Entries of a directory in one answer."""

_OF_SNAPSHOTS: Final = f"/{SNAPSHOT_DIRECTORY}"

_log = logging.getLogger(__name__)

Facts = dict[str, object]

Q = TypeVar("Q")
A = TypeVar("A")


class Repeatable(Protocol):
    """A request that is done once however often it is sent."""

    @property
    def once(self) -> Once | None:
        """Its name; None for a request that is done as often as it is sent."""


R = TypeVar("R", bound=Repeatable)
RightOf = TokenRight | Callable[[Any], TokenRight]


class By(enum.Enum):
    """The NameNode that answers a call, and in how many steps."""

    LEADER = "leader"
    """In one step: a call that fails has changed nothing, unless its error says that this is not
    known."""
    LEADER_IN_STEPS = "leader, in several steps"
    """In several: when a later step fails, an earlier one may have changed something."""
    ANY_MEMBER = "any member"
    """Any of them shows what was committed before the call: it asks the leader how far that is."""
    EVERY_MEMBER = "every member"
    """Each answers for itself: all listen to the DataNodes, so that the next leader knows them."""


@dataclass(frozen=True, slots=True)
class Call:
    """A row of `CALLS`. The functions that make it (`decided`, `shown`, `handled`) type it."""

    method: Method[Any, Any]
    answer: Callable[[NameNode, Any], Awaitable[Any]]
    """Returns the answer; with the msgpack of it, a `Decided`, where there is a record of it."""
    by: By = By.LEADER
    check: Callable[[Any], None] | None = None
    """The check of a request before anything is done for it; raises InvalidRequestError."""
    deeds: DeedsOf | None = None
    """Finds the changes that a request asks for, as the audit log tells them; None for a call that
    only shows something."""
    log: Callable[[Any, Any], Facts | None] | None = None
    """The facts that the log tells of request and answer; None for one that changed nothing."""
    level: int = logging.INFO
    """The level of that line."""
    may: May | None = None
    """The check that the caller may ask so, where no path that is walked shows it."""
    at_once: bool = False
    """True if the call waits only for the store, which notices a lost leadership by itself."""
    of_datanode: bool = False
    """True if only the DataNode that is its request's `node` makes the call (`node_roles.py`)."""
    right: RightOf = TokenRight.WRITE
    """The right that a caller with a token must have, for all requests or found for each."""


def decided(
    method: Method[R, A],
    decide: Callable[[Draft, R, Context], Slices[A]],
    *,
    ids: Callable[[R], int] = lambda _: 0,
    check: Callable[[R], None] | None = None,
    then: Callable[[NameNode, R, A], None] | None = None,
    deeds: str | Callable[[R], Deeds],
    log: Callable[[R, A], Facts | None] | None = None,
) -> Call:
    """Return the row of a change of names: one edit, done once, and refused in safe mode.

    Args:
        ids: the greatest number of files and directories that a request can make.
        then: is called in this process once the change is committed.
    """

    def decision(draft: Draft, request: R, context: Context) -> Slices[A]:
        namespace.check_names_may_change(draft)
        return (yield from decide(draft, request, context))

    async def answer(node: NameNode, request: R) -> Decided[A]:
        made = await node.catalog.decide(
            method.answer, decision, request, ids(request), once=request.once
        )
        if then is not None:
            then(node, request, made.value)
        return made

    return handled(method, answer, check=check, deeds=deeds, log=log, at_once=True)


def shown(
    method: Method[Q, A],
    show: Callable[[View, Q, Actor], A],
    *,
    check: Callable[[Q], None] | None = None,
) -> Call:
    """Return the row of a call that is answered with what a linearizable view shows."""
    assert method.any_namenode, "clients ask any of them"

    async def answer(node: NameNode, request: Q) -> A:
        view = await node.store.read_barrier()
        if not view.get(keys.CLUSTER).exists:
            raise UnavailableError("the cluster is just starting: it has no root directory yet")
        return show(view, request, ACTOR.get())

    return Call(method, answer, By.ANY_MEMBER, check, at_once=True, right=TokenRight.READ)


def handled(
    method: Method[Q, A],
    answer: Callable[[NameNode, Q], Awaitable[A | Decided[A]]],
    *,
    by: By = By.LEADER,
    check: Callable[[Q], None] | None = None,
    deeds: str | Callable[[Q], Deeds] | None = None,
    log: Callable[[Q, A], Facts | None] | None = None,
    level: int = logging.INFO,
    may: May | None = None,
    at_once: bool = False,
    of_datanode: bool = False,
    right: RightOf = TokenRight.WRITE,
) -> Call:
    """Return the row of a call that takes several changes or reads, or is about this process.

    Args:
        deeds: HDFS's name for a change of the request's path, which the log tells, too; or a
            function that finds the changes of a request.
        log: the facts of the log; beside the path, if `deeds` is a name.
    """
    if isinstance(deeds, str):
        deeds, log = audit.of_path(deeds), _beside_path(log)
    return Call(method, answer, by, check, deeds, log, level, may, at_once, of_datanode, right)


def _beside_path(log: Callable[[Any, Any], Facts | None] | None) -> Callable[[Any, Any], Facts]:
    if log is None:
        return lambda request, _: {"path": request.path}
    return lambda request, answer: {"path": request.path, **(log(request, answer) or {})}


@dataclass(slots=True)
class _CallCounts:
    done: int = 0
    failed: int = 0
    times: Durations = field(default_factory=Durations)


class Service:
    """Answers the calls for one node."""

    def __init__(
        self,
        node: NameNode,
        metrics: NodeMetrics | None = None,
        calls: tuple[Call, ...] | None = None,
        roles: Roles = UNPROVEN,
    ) -> None:
        """Answer `calls` (None for those of `CALLS`), and count them in `metrics`; `roles` tells
        which callers are DataNodes."""
        metrics = metrics or NodeMetrics("namenode")
        metrics.tally("calls", "Calls by what became of them.", ("call", "outcome"), self._counts)
        metrics.histogram(
            "call",
            "From the arrival of a call until its answer, of calls that came since the start.",
            ("call",),
            lambda: [
                ((name,), tally.times)
                for name, tally in self._tallies.items()
                if tally.done or tally.failed
            ],
        )
        self._tallies: dict[str, _CallCounts] = {}
        self._handlers: dict[str, tuple[Call, Callable[[Any], Awaitable[Any]]]] = {}
        for call in CALLS if calls is None else calls:
            tally = self._tallies[call.method.name] = _CallCounts()
            self._handlers[call.method.name] = call, _handler(node, call, tally, roles)

    def _counts(self) -> Iterator[tuple[tuple[str, str], int]]:
        for name, tally in self._tallies.items():
            yield (name, "done"), tally.done
            yield (name, "failed"), tally.failed

    async def call(self, method: Method[Q, A], request: Q) -> A:
        """Answer a call that this process makes, as itself where no other caller was told.

        Raises the errors that a client would get.
        """
        caller = CALLER.get()
        before = CALLER.set(HERE if caller is UNTOLD else caller)
        try:
            sent = await self._handlers[method.name][1](request)
        finally:
            CALLER.reset(before)
        answer: A = msgpack_decoder(method.answer).decode(sent) if isinstance(sent, Raw) else sent
        return answer

    def add_to(self, router: RpcRouter) -> None:
        """Answer the calls that come from the network."""
        for name, (call, handler) in self._handlers.items():
            router.register(
                name,
                call.method.request,
                handler,
                at_once=call.at_once,
                request_bytes_max=call.method.request_bytes_max,
            )


def _handler(
    node: NameNode, call: Call, tally: _CallCounts, roles: Roles
) -> Callable[[Any], Awaitable[Any]]:
    name, check, answer = call.method.name, call.check, call.answer
    deeds, log = call.deeds, call.log
    of_datanode, may, users, times = call.of_datanode, call.may, node.users, tally.times
    level, is_logged = call.level, _log.isEnabledFor
    right, leadership, by = call.right, node.leadership, call.by
    of_each, in_steps = by is By.EVERY_MEMBER, by is By.LEADER_IN_STEPS
    of_leader = in_steps or by is By.LEADER

    async def handle(request: Any) -> Any:
        if of_leader and not leadership.serves:
            raise leadership.not_leading()
        came_s = perf_counter()
        try:
            caller = CALLER.get()
            if caller.token is not None:
                needed = right if isinstance(right, TokenRight) else right(request)
                node.tokens.allow(caller.token, needed, name)
            if of_datanode:
                roles.check(caller, CallerRole.DATANODE, name, request.node)
            if check is not None:
                check(request)
            # What a DataNode says of itself never waits for a directory of users.
            actor = ITSELF if of_datanode else users.known(caller) or await users.look_up(caller)
            ACTOR.set(actor)
            if may is not None and not actor.superuser:
                may(await node.catalog.view(), request, actor)
            sent = answered = await answer(node, request)
        except Exception as error:
            tally.failed += 1
            audit.note_refused(name, deeds, request, error)
            told = error if of_each else leadership.told(error, several_steps=in_steps)
            if told is error:
                raise
            raise told from error
        finally:
            took_s = perf_counter() - came_s
            times.counts[bisect_left(BOUNDS_S, took_s)] += 1
            times.sum_s += took_s
        if isinstance(answered, Decided):
            answered, sent = answered.value, answered.sent
        tally.done += 1
        if deeds is None or (isinstance(answered, api.Deletion) and not answered.existed):
            return sent
        if log is not None and is_logged(level) and (about := log(request, answered)) is not None:
            log_event(_log, name, facts(**about), level)
        if AUDIT_LOG.level <= logging.INFO:
            audit.note_done(deeds, request, answered)
        return sent

    return partial(leadership.answer, handle) if of_leader and not call.at_once else handle


# --- short decisions and views --------------------------------------------------------------------


def _names(request: api.MakeDirectories) -> int:
    return len(split(request.path))


def _renamed(node: NameNode, request: api.RenamePath, _: api.FileStatus) -> None:
    if request.overwrite:
        node.housekeeper.garbage_waits()


def _deleted(node: NameNode, _: api.DeletePath, deletion: api.Deletion) -> None:
    if deletion.existed:
        node.housekeeper.garbage_waits()


def _concat(draft: Draft, request: api.ConcatFiles, context: Context) -> Slices[api.FileStatus]:
    yield from concat(draft, request.target, request.sources, context)
    return tree.stat(draft, request.target, context.actor)


def _done_by(operations: tuple[Operation, ...]) -> str:
    """Return what a transaction changes, for a line of the log: its first changes."""
    deeds = (deed for each in operations if (deed := audit.deed_of(each)) is not None)
    return _first_of(" ".join(filter(None, astuple(deed))) for deed in deeds)


def _first_of(told: Iterable[str]) -> str:
    first = list(islice(told, DEEDS_TOLD + 1))
    return "; ".join([*first[:DEEDS_TOLD], "..."] if len(first) > DEEDS_TOLD else first)


def _block_added(request: api.AddBlock) -> Deeds:
    of = audit.of_file if request.file_id else audit.of_nothing_named
    return of("addBlock")(request)


def _of_snapshot(command: str) -> DeedsOf:
    return lambda request: (Deed(command, _in_snapshots(request.path, request.name)),)


def _in_snapshots(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{SNAPSHOT_DIRECTORY}/{name}"


def _safe_mode_deeds(request: status.SafeModeRequest) -> Deeds:
    shows = request.action is status.SafeModeAction.GET
    return () if shows else (Deed(f"safemode_{request.action.value}", ""),)


def _application(view: View, request: api.ApplicationRequest, _: Actor) -> api.ApplicationAnswer:
    last = transactions.last_applied(view, request.app_id)
    return api.ApplicationAnswer(None if last is None else last.version)


def _of_safe_mode(request: status.SafeModeRequest) -> TokenRight:
    shows = request.action is status.SafeModeAction.GET
    return TokenRight.READ if shows else TokenRight.ADMIN


CALLS: Final = (
    # --- names -----------------------------------------------------------------------------------
    decided(
        api.MKDIRS,
        in_one(namespace.make_directories),
        ids=_names,
        check=checks.check_directory,
        deeds="mkdirs",
    ),
    handled(
        api.CREATE,
        handlers.create,
        check=checks.check_create,
        deeds="create",
        log=lambda request, made: {
            "file": made.status.file_id,
            "writer": request.writer,
            "block": made.first.record.block if made.first else None,
            "members": ",".join(made.first.record.members) if made.first else None,
        },
        level=logging.DEBUG,
        at_once=True,
    ),
    handled(
        api.CREATE_FILES,
        handlers.create_files,
        check=checks.check_create_files,
        deeds=audit.of_files_made,
        log=lambda request, made: {
            "files": len(made.files),
            "first": request.files[0].path,
            "blocks": sum(each.first is not None for each in made.files),
        },
        level=logging.DEBUG,
        at_once=True,
    ),
    handled(
        api.APPEND,
        handlers.append,
        check=lambda request: checks.check_writer(request.writer),
        deeds="append",
        log=lambda request, opened: {"file": opened.status.file_id, "writer": request.writer},
        level=logging.DEBUG,
        at_once=True,
    ),
    shown(
        api.STAT,
        # The way of nearly all goes straight to the tree: it is pinned (tests/ways).
        lambda view, request, actor: (
            snapshots.stat if _OF_SNAPSHOTS in request.path else tree.stat
        )(view, request.path, actor),
    ),
    shown(
        api.LIST,
        lambda view, request, actor: snapshots.listed(view, request, LIST_LIMIT, actor),
    ),
    decided(
        api.RENAME,
        in_one(namespace.rename),
        then=_renamed,
        deeds=lambda request: (Deed("rename", request.source, request.destination),),
        log=lambda request, _: {"source": request.source, "destination": request.destination},
    ),
    decided(
        api.DELETE,
        namespace.delete,
        then=_deleted,
        deeds="delete",
        log=lambda request, _: {"recursive": request.recursive},
    ),
    decided(
        api.CONCAT,
        _concat,
        deeds=lambda request: (audit.concatenation(request.target, request.sources),),
        log=lambda request, _: {"path": request.target, "sources": len(request.sources)},
    ),
    decided(
        care.SET_REPLICATION,
        in_one(namespace.set_replication),
        check=lambda request: checks.check_replication(request.replication),
        then=lambda node, _, status: node.look_at_file(status.file_id),
        deeds="setReplication",
        log=lambda request, _: {"replication": request.replication},
    ),
    decided(
        SET_PERMISSION,
        in_one(owners.change_permission),
        check=checks.check_set_permission,
        deeds="setPermission",
        log=lambda request, _: {"permission": f"{request.permission:o}"},
    ),
    decided(
        SET_ATTRIBUTES,
        in_one(attributes.change_attributes),
        check=checks.check_set_attributes,
        deeds="setXAttr",
        log=lambda request, _: {"names": ",".join(request.attributes)},
    ),
    shown(GET_ATTRIBUTES, attributes.show, check=checks.check_get_attributes),
    decided(
        SET_OWNER,
        in_one(owners.change_owner),
        check=checks.check_set_owner,
        deeds="setOwner",
        log=lambda request, _: {"owner": request.owner, "group": request.group},
    ),
    decided(
        SET_TIMES,
        in_one(owners.change_times),
        check=checks.check_set_times,
        deeds="setTimes",
        log=lambda request, _: {"modified_s": request.modified_s},
    ),
    shown(CHECK_ACCESS, owners.check_access),
    handled(SUM_SUBTREE, subtrees.sum_subtree, check=checks.check_subtree, right=TokenRight.READ),
    handled(LIST_SUBTREE, subtrees.list_subtree, check=checks.check_subtree, right=TokenRight.READ),
    handled(
        LIST_KEYS,
        subtrees.list_keys,
        by=By.ANY_MEMBER,
        check=checks.check_list_keys,
        right=TokenRight.READ,
    ),
    handled(
        WATCH,
        lambda node, request: node.feed.answer(request, ACTOR.get()),
        by=By.ANY_MEMBER,
        check=checks.check_watch,
        at_once=True,
        right=TokenRight.READ,
    ),
    decided(
        CHANGE_ACL,
        in_one(owners.change_path_acl),
        check=checks.check_acl,
        deeds=lambda request: (Deed(request.change.value, request.path),),
        log=lambda request, _: {
            "path": request.path,
            "change": request.change.value,
            "entries": ",".join(map(str, request.entries)),
        },
    ),
    shown(
        GET_ACL_STATUS,
        lambda view, request, actor: owners.acl_status(view, request.path, actor),
    ),
    decided(
        CREATE_SNAPSHOT,
        in_one(snapshot_changes.create),
        ids=lambda _: 1,
        deeds=_of_snapshot("createSnapshot"),
        log=lambda _, made: {"path": made.path},
    ),
    decided(
        DELETE_SNAPSHOT,
        in_one(snapshot_changes.delete),
        then=lambda node, *_: node.housekeeper.garbage_waits(),
        deeds=_of_snapshot("deleteSnapshot"),
        log=lambda _, ended: {"path": ended.path},
    ),
    decided(
        RENAME_SNAPSHOT,
        in_one(snapshot_changes.rename),
        deeds=lambda request: (
            Deed(
                "renameSnapshot",
                _in_snapshots(request.path, request.name),
                _in_snapshots(request.path, request.new_name),
            ),
        ),
        log=lambda request, made: {"path": made.path, "before": request.name},
    ),
    shown(LIST_SNAPSHOTS, snapshots.show_all),
    shown(KEPT_ROOM, snapshots.kept_room, check=checks.check_kept_room),
    decided(UNDELETE, in_one(history_window.undelete), deeds="undelete"),
    handled(DIFF_SNAPSHOTS, subtrees.diff_snapshots, right=TokenRight.READ),
    handled(
        api.TRANSACT,
        handlers.transact,
        check=checks.check_transact,
        may=of_writers,
        deeds=audit.of_transaction,
        log=lambda request, outcome: {
            "did": _done_by(request.operations),
            "closed": _first_of(str(each.file_id) for each in request.all_closes) or None,
            "operations": len(request.operations),
            "application": request.application.app_id if request.application else None,
            "version": outcome.version,
            "applied": outcome.applied,
        },
    ),
    shown(api.APPLICATION, _application, check=checks.check_application),
    # --- files being written, blocks -------------------------------------------------------------
    handled(
        api.TAKE_OVER,
        handlers.take_over,
        by=By.LEADER_IN_STEPS,
        deeds="takeOver",
        log=lambda request, status: {"file": status.file_id},
    ),
    handled(
        lease_call.RECOVER_LEASE,
        handlers.recover_lease,
        by=By.LEADER_IN_STEPS,
        deeds="recoverLease",
        log=lambda request, recovery: {
            "stuck": len(recovery.stuck),
            "given_up": len(request.give_up) + len(request.empty),
        },
        may=of_superuser(lambda request: bool(request.give_up or request.empty)),
        right=lambda request: (
            TokenRight.ADMIN if request.give_up or request.empty else TokenRight.WRITE
        ),
    ),
    handled(
        file_pages.GET_FILE, handlers.get_file, check=checks.check_get_file, right=TokenRight.READ
    ),
    handled(
        api.ADD_BLOCK,
        handlers.add_block,
        check=checks.check_add_block,
        deeds=_block_added,
        log=lambda request, view: {
            "block": view.record.block,
            "file": request.file_id,
            "writer": request.writer,
            "members": ",".join(view.record.members),
        },
        level=logging.DEBUG,
        may=of_writer(lambda request: request.file_id),
    ),
    handled(
        api.REOPEN_BLOCK,
        handlers.reopen_block,
        by=By.LEADER_IN_STEPS,
        check=checks.check_reopen_block,
        deeds=of_block("reopenBlock"),
        log=lambda request, reopened: {
            "block": request.block,
            "file": request.file_id,
            "writer": request.writer,
            "generation": reopened.view.record.writer_generation if reopened.view else None,
            "left_alone": reopened.why or None,
        },
        level=logging.DEBUG,
        may=of_writer(lambda request: request.file_id),
    ),
    handled(
        api.FINALIZE_BLOCK,
        handlers.finalize_block,
        deeds=of_block("finalizeBlock"),
        log=lambda request, _: {
            "block": request.block,
            "writer": request.writer,
            "length": request.length,
        },
        level=logging.DEBUG,
        may=of_block_writer,
    ),
    handled(
        api.SEAL_BLOCK,
        handlers.seal_block,
        deeds=of_block("sealBlock"),
        by=By.LEADER_IN_STEPS,
        may=of_block_writer,
    ),
    handled(
        rebuild.REBUILD_BLOCK,
        handlers.rebuild_block,  # when it fails, the generations it allocated change nothing
        check=checks.check_rebuild,
        deeds=of_block("rebuildBlock"),
        log=lambda request, view: {
            "block": request.block,
            "writer": request.writer,
            "failed": ",".join(request.failed),
            "members": ",".join(view.record.members),
            "generation": view.record.writer_generation,
        },
        may=of_block_writer,
    ),
    handled(
        api.DELETE_BLOCK,
        handlers.delete_block,
        deeds=of_block("deleteBlock"),
        log=lambda request, _: {"block": request.block},
        level=logging.DEBUG,
    ),
    handled(api.GET_BLOCK, handlers.get_block, may=of_block_reader, right=TokenRight.READ),
    handled(
        api.CLOSE_FILE,
        handlers.close_file,
        by=By.LEADER_IN_STEPS,
        deeds=audit.of_close,
        may=of_writer(lambda request: request.file_id),
    ),
    handled(api.RENEW_LEASES, handlers.renew_leases),
    # --- DataNodes -------------------------------------------------------------------------------
    handled(
        api.REPORT_BAD_REPLICA,
        handlers.report_bad_replica,
        by=By.EVERY_MEMBER,
        check=checks.check_bad_replica,
        right=TokenRight.READ,  # readers report what they found
    ),
    handled(
        reports.REGISTER,
        handlers.register,
        by=By.EVERY_MEMBER,
        check=checks.check_register,
        of_datanode=True,
    ),
    handled(reports.HEARTBEAT, handlers.heartbeat, by=By.EVERY_MEMBER, of_datanode=True),
    handled(
        reports.BLOCK_REPORT,
        handlers.block_report,
        by=By.EVERY_MEMBER,
        check=checks.check_report,
        of_datanode=True,
    ),
    # --- people ----------------------------------------------------------------------------------
    handled(
        care.SET_ADMIN_STATE,
        operators.set_admin_state,
        check=checks.check_admin_state,
        deeds=lambda request: (Deed(f"setAdminState_{request.admin.value}", request.node),),
        log=lambda _, done: {
            "datanode": done.node,
            "admin": done.admin.value,
            "until": done.until_ms,
        },
        may=of_superuser(),
        right=TokenRight.ADMIN,
    ),
    handled(
        encryption.ENCRYPT_DIRECTORY,
        operators.encrypt_directory,
        deeds="createEncryptionZone",
        log=lambda request, zone: {"zone": zone.directory, "master": zone.master},
        may=of_superuser(),
        right=TokenRight.ADMIN,
    ),
    handled(
        encryption.ROLL_MASTER_KEY,
        operators.roll_master_key,
        deeds=audit.of_nothing_named("rollMasterKey"),
        log=lambda _, rolled: {"master": rolled.master, "wrapped": rolled.wrapped},
        may=of_superuser(),
        right=TokenRight.ADMIN,
    ),
    handled(
        encryption.ENCRYPTION_ZONES,
        operators.encryption_zones,
        may=of_superuser(),
        right=TokenRight.ADMIN,
    ),
    handled(
        quota.SET_QUOTA,
        operators.set_quota,
        check=checks.check_set_quota,
        deeds="setQuota",
        log=lambda request, done: {"names_max": done.names_max, "space_max": done.space_max},
        may=of_superuser(),
        right=TokenRight.ADMIN,
    ),
    handled(
        quota.LIST_QUOTAS,
        operators.list_quotas,
        may=of_superuser(lambda request: not request.path),
        right=TokenRight.READ,
    ),
    handled(
        quota.CHECK_QUOTAS,
        operators.check_quotas,
        deeds=lambda request: (Deed("repairQuota", request.path),) if request.repair else (),
        log=lambda request, _: {"path": request.path} if request.repair else None,
        may=of_superuser(),
        right=TokenRight.ADMIN,
    ),
    handled(
        care.BALANCE,
        operators.balance,
        check=checks.check_balance,
        deeds=audit.of_nothing_named("balance"),
        may=of_superuser(),
        right=TokenRight.ADMIN,
    ),
    handled(care.LEAVING, operators.leaving, right=TokenRight.READ),
    handled(
        fsck_call.CHECK_FILES,
        operators.check_files,
        check=checks.check_check_files,
        may=of_superuser(),
        right=TokenRight.ADMIN,
    ),
    handled(status.CLUSTER_STATUS, people.cluster_status, right=TokenRight.READ),
    handled(
        status.SAFE_MODE,
        operators.safe_mode,
        deeds=_safe_mode_deeds,
        log=lambda request, found: (
            None
            if request.action is status.SafeModeAction.GET
            else {"action": request.action.value, "on": found.on}
        ),
        may=of_superuser(lambda request: request.action is not status.SafeModeAction.GET),
        right=_of_safe_mode,
    ),
    handled(status.EXPLAIN, people.explain, may=of_block_reader, right=TokenRight.READ),
    handled(
        user_tokens.ISSUE_TOKEN,
        operators.issue_token,
        check=checks.check_issue_token,
        deeds=lambda request: (Deed("getDelegationToken", request.user),),
        log=lambda _, issued: {
            "token": user_tokens.serial_text(issued.note.serial),
            "of": issued.note.user,
            "rights": str(TokenRight(issued.note.rights)),
            "until": issued.note.until_s,
        },
        right=TokenRight.NONE,
    ),
    handled(user_tokens.LIST_TOKENS, operators.list_tokens, right=TokenRight.NONE),
    handled(
        user_tokens.REVOKE_TOKEN,
        operators.revoke_token,
        deeds=lambda request: (
            Deed("cancelDelegationToken", user_tokens.serial_text(request.serial)),
        ),
        log=lambda request, _: {"token": user_tokens.serial_text(request.serial)},
        right=TokenRight.NONE,
    ),
    handled(insight.LIST_WRITERS, people.writers, right=TokenRight.READ),
    handled(insight.LIST_UNWHOLE, people.unwhole, may=of_superuser(), right=TokenRight.READ),
    handled(insight.SHOW_WORK, people.work, right=TokenRight.READ),
    handled(insight.SHOW_SETTINGS, people.settings, by=By.EVERY_MEMBER, right=TokenRight.READ),
)
