"""Checks of requests before anything is done for them; the types are checked already."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from paxosblock.api.care import REPLICATION_MAX, AdminState, Balance, SetAdminState
from paxosblock.api.file_pages import GetFile
from paxosblock.api.fsck_call import CheckFiles
from paxosblock.api.lease_call import (
    RecoverLease,
)
from paxosblock.api.namenode import (
    FILES_TOGETHER_MAX,
    NO_FILE,
    AddBlock,
    ApplicationRequest,
    ApplicationVersion,
    BadReplica,
    CreateFile,
    CreateFiles,
    FinalizeBlock,
    MakeDirectories,
    ReopenBlock,
    Transact,
)
from paxosblock.api.ownership import (
    ChangePathAcl,
    SetPathOwner,
    SetPathPermission,
    SetPathTimes,
)
from paxosblock.api.path_attributes import (
    ATTRIBUTE_NAME_BYTES_MAX,
    VALUE_BYTES_MAX,
    GetAttributes,
    SetPathAttributes,
)
from paxosblock.api.quota import NO_QUOTA, SetQuota
from paxosblock.api.rebuild import RebuildBlock
from paxosblock.api.reports import BlockReport, Register
from paxosblock.api.snapshot_calls import AskKeptRoom
from paxosblock.api.subtree import ListKeys, ListSubtree, SumSubtree
from paxosblock.api.transaction import (
    NAMES_MADE_MAX,
    OPERATIONS_MAX,
    AclChange,
    ChangeAcl,
    SetAttributes,
    SetOwner,
    SetPermission,
    SetTimes,
)
from paxosblock.api.user_tokens import (
    LONGEST_S,
    PURPOSE_CHARACTERS_MAX,
    IssueToken,
    TokenRight,
)
from paxosblock.api.watching import POLL_MAX_S, WatchNames
from paxosblock.base import paths
from paxosblock.base.modes import PERMISSION_MAX, UMASK_MAX
from paxosblock.base.rack import is_host, is_rack
from paxosblock.base.replacement import Policy, Replacement
from paxosblock.base.units import format_duration
from paxosblock.base.user_names import NAME_CHARACTERS_MAX, NAME_EXPECTED, is_user
from paxosblock.config import NameNodeConfig
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog.keys import PLACE_MAX
from paxosblock.namenode.catalog.records import RECOVERY_WRITER, BlockEntry
from paxosblock.namenode.catalog.transactions import new_inodes
from paxosblock.protocol.types import WriterId

WINDOW_MAX = 1024
WRITER_CHARACTERS_MAX = 128
QUOTA_MAX = (1 << 63) - 1
BITS_MAX = 7
"""Read, write and execute."""
NODE_CHARACTERS_MAX = 8192
"""A DataNode may be called after its machine and folder."""
APPLICATION_CHARACTERS_MAX = 255
VERSION_MAX = (1 << 63) - 1
MODIFIED_END_S = 253_402_214_400
"""The last day of the year 9999: calendars of Python end with it, in each time zone."""
GROUPS_BYTES_MAX = 4096
"""A token is a header of a request."""
SECONDS_MAX = 10**10
"""Three centuries: no time to live is longer."""


def check_create(request: CreateFile) -> None:
    """Raise InvalidRequestError when a file cannot be made like this."""
    check_writer(request.writer)
    check_replication(request.replication)
    _check_bits(request)
    check_owner(request.owner)
    check_block_size(request.block_size, request.path)
    if request.first is not None:
        _check_host("", request.first.host)
        _check_window(request.first.window)


def check_create_files(request: CreateFiles) -> None:
    """Raise InvalidRequestError when files cannot be made together like this."""
    _check_files_together(len(request.files), 1)
    for each in request.files:
        check_create(each)
    if request.directory is not None:
        _demand(request.directory.ttl_s is not None, "the directory has no time to live")
        check_directory(request.directory)


def _check_files_together(count: int, least: int) -> None:
    _demand(
        least <= count <= FILES_TOGETHER_MAX,
        f"a request about {count} files: {least} to {FILES_TOGETHER_MAX}",
    )


def check_directory(request: MakeDirectories) -> None:
    """Raise InvalidRequestError when a directory cannot be made like this."""
    _check_bits(request)
    check_owner(request.owner)
    if request.ttl_s is not None:
        check_seconds(f"{paths.shown(request.path)}: time to live", request.ttl_s)


def check_transact(request: Transact) -> None:
    """Raise InvalidRequestError for a transaction that makes no sense."""
    count = len(request.operations)
    _demand(
        1 <= count <= OPERATIONS_MAX,
        f"a transaction of {count} operations: 1 to {OPERATIONS_MAX}",
    )
    _check_files_together(len(request.all_closes), 0)
    names = new_inodes(request.operations)
    _demand(
        names <= NAMES_MADE_MAX,
        f"a transaction makes paths of {names} names: at most {NAMES_MADE_MAX}",
    )
    check_owner(request.owner)
    if (umask := request.umask) is not None:
        _demand(0 <= umask <= UMASK_MAX, f"umask {umask}: 0 to {UMASK_MAX:o} (octal)")
    check_replication(request.replication)
    check_block_size(request.block_size)
    if request.application is not None:
        _check_version(request.application)
    for operation in request.operations:
        if isinstance(operation, SetPermission):
            check_permission(operation.permission)
        elif isinstance(operation, SetOwner):
            check_set_owner(operation)
        elif isinstance(operation, SetAttributes):
            check_set_attributes(operation)
        elif isinstance(operation, SetTimes):
            check_set_times(operation)
        elif isinstance(operation, ChangeAcl):
            check_acl(operation)


def _check_bits(request: CreateFile | MakeDirectories) -> None:
    bits, unmasked = request.permission, request.unmasked
    if unmasked is None:
        check_permission(bits)
    else:
        asked, umask = unmasked.permission, unmasked.umask
        _demand(
            0 <= asked <= PERMISSION_MAX and 0 <= umask <= UMASK_MAX and bits == asked & ~umask,
            f"permission {bits:o} is not {asked:o} less a umask of {umask:o} (octal)",
        )


def check_set_permission(request: SetPathPermission) -> None:
    """Raise InvalidRequestError for bits that are not a permission."""
    check_permission(request.permission)


def check_set_owner(request: SetPathOwner | SetOwner) -> None:
    """Raise InvalidRequestError for a name that no user or group has, or for none at all."""
    names = [name for name in (request.owner, request.group) if name]
    where = paths.shown(request.path)
    _demand(bool(names), f"{where}: neither an owner nor a group")
    for name in names:
        _demand(is_user(name), f"{where}: {name[:40]!r} is no owner or group: {NAME_EXPECTED}")


def check_set_attributes(request: SetPathAttributes | SetAttributes) -> None:
    """Raise InvalidRequestError for a name that no attribute has, for one that is too large, and
    for none at all.
    """
    where = paths.shown(request.path)
    _demand(bool(request.attributes), f"{where}: no attribute is named")
    for name, value in request.attributes.items():
        size_bytes = _check_attribute(where, name) + len(value or b"")
        _demand(
            size_bytes <= VALUE_BYTES_MAX,
            f"{where}: the XAttr {name} is too big. The maximum combined size of the name and value"
            f" is {VALUE_BYTES_MAX}, but the total size is {size_bytes}",
        )


def check_get_attributes(request: GetAttributes) -> None:
    """Raise InvalidRequestError for a name that no attribute has."""
    for name in request.names:
        _check_attribute(paths.shown(request.path), name)


def _check_attribute(where: str, name: str) -> int:
    """Return the bytes of an attribute's name. Raises InvalidRequestError for one that none has."""
    namespace, _, rest = name.partition(".")
    shown = name[:40].encode("unicode_escape").decode()
    size_bytes = len(name.encode(errors="surrogatepass"))
    _demand(
        namespace in ("user", "trusted") and bool(rest) and "\0" not in name,
        f"{where}: {shown!r} is no name of an attribute: it begins with user. or trusted.",
    )
    _demand(name.isprintable(), f"{where}: {shown!r} has characters that cannot be shown")
    _demand(
        size_bytes <= ATTRIBUTE_NAME_BYTES_MAX,
        f"{where}: {shown!r}... has {size_bytes} bytes: at most {ATTRIBUTE_NAME_BYTES_MAX}",
    )
    return size_bytes


def check_set_times(request: SetPathTimes | SetTimes) -> None:
    """Raise InvalidRequestError for a time that no calendar has."""
    _demand(
        0 <= request.modified_s < MODIFIED_END_S,
        f"{paths.shown(request.path)}: changed at {request.modified_s} s: 1970 to 9999",
    )


def check_subtree(request: SumSubtree | ListSubtree) -> None:
    """Raise InvalidRequestError for a place to go on from that is not below the path."""
    names = paths.split(request.path)
    _demand(
        not request.after or paths.split(request.after)[: len(names)] == names,
        f"{paths.shown(request.path)}: cannot go on behind {paths.shown(request.after)}",
    )


def check_list_keys(request: ListKeys) -> None:
    """Raise InvalidRequestError for a page of no keys."""
    paths.split(request.path)
    _demand(request.limit >= 1, f"{paths.shown(request.path)}: a page has at least one key")


def check_watch(request: WatchNames) -> None:
    """Raise InvalidRequestError for a position or a time that cannot be."""
    paths.split(request.path)
    if (request.after or 0) < 0 or request.skip < 0:
        raise InvalidRequestError(f"{paths.shown(request.path)}: not a position of changes")
    if not 0 <= request.wait_s <= POLL_MAX_S:
        where = paths.shown(request.path)
        raise InvalidRequestError(f"{where}: a watcher waits 0 to {POLL_MAX_S:g} s")


def check_acl(request: ChangePathAcl | ChangeAcl) -> None:
    """Raise InvalidRequestError for entries that no user or group has, and where none is asked for
    or all are missing."""
    where = paths.shown(request.path)
    none = request.change in (AclChange.REMOVE, AclChange.REMOVE_DEFAULT)
    _demand(
        bool(request.entries) is not none, f"{where}: {'an' if none else 'no'} <acl_spec> entry"
    )
    for entry in request.entries:
        _demand(0 <= entry.permission <= BITS_MAX, f"{where}: {entry.permission} is no permission")
        _demand(
            not entry.name or is_user(entry.name),
            f"{where}: {entry.name[:40]!r} is no owner or group: {NAME_EXPECTED}",
        )


def check_application(request: ApplicationRequest) -> None:
    """Raise InvalidRequestError for an application without a name."""
    check_id("an application's", request.app_id, APPLICATION_CHARACTERS_MAX)


def check_recover_lease(request: RecoverLease, entries: Iterable[BlockEntry]) -> None:
    """Raise InvalidRequestError when members are given up that the file's blocks do not have."""
    members = {entry.record.block: set(entry.record.members) for entry in entries}
    for block in (*(each.block for each in request.give_up), *request.empty):
        _demand(block in members, f"block {block} is none of {paths.shown(request.path)}")
    for each in request.give_up:
        _demand(
            bool(each.members) and members[each.block].issuperset(each.members),
            f"block {each.block}: give up some of {', '.join(sorted(members[each.block]))}",
        )
        _demand(
            set(each.members) != members[each.block],
            f"block {each.block}: one member at least must answer",
        )


def check_admin_state(request: SetAdminState) -> None:
    """Raise InvalidRequestError for a DataNode without a name, or a maintenance without an end."""
    check_id("a DataNode's", request.node)
    if request.admin is AdminState.IN_MAINTENANCE:
        check_seconds("maintenance", request.for_s)
    else:
        _demand(request.for_s == 0, "only a maintenance ends by itself")


def check_check_files(request: CheckFiles) -> None:
    """Raise InvalidRequestError for a check that goes on from a place outside its path."""
    path = paths.split(request.path)
    if (after := request.after) is not None:
        where = f"{paths.shown(request.path)}: cannot go on behind {paths.shown(after.path)}"
        _demand(paths.split(after.path)[: len(path)] == path, where)
        _demand(0 <= after.place <= PLACE_MAX, f"{where}, place {after.place}")


def check_set_quota(request: SetQuota) -> None:
    """Raise InvalidRequestError for limits that are none. The words are HDFS's."""
    names, space = request.names, request.space
    kept = "unchanged"
    shown = f"{kept if names is None else names} and {kept if space is None else space}"
    allowed = (names is None or names == NO_QUOTA or 0 < names <= QUOTA_MAX) and (
        space is None or space == NO_QUOTA or 0 <= space <= QUOTA_MAX
    )
    _demand(allowed, f"Invalid values for quota : {shown}")


def check_get_file(request: GetFile) -> None:
    """Raise InvalidRequestError for a page without a beginning."""
    _demand(0 <= request.place <= PLACE_MAX, f"place {request.place}: 0 to {PLACE_MAX}")
    _demand(
        request.offset is None or request.offset >= 0,
        f"{paths.shown(request.path)}: negative offset {request.offset}",
    )


def check_kept_room(request: AskKeptRoom) -> None:
    """Raise InvalidRequestError for a block that there cannot be."""
    _demand(0 <= request.place <= PLACE_MAX, f"place {request.place}: 0 to {PLACE_MAX}")
    _demand(0 <= request.file < 1 << 64, f"file {request.file}: no id of a file")


def _check_window(window: int) -> None:
    _demand(1 <= window <= WINDOW_MAX, f"window {window}: 1 to {WINDOW_MAX} chunks")


def check_add_block(request: AddBlock) -> None:
    """Raise InvalidRequestError when a block cannot be made like this."""
    check_writer(request.writer)
    _check_host("", request.host)
    _check_window(request.window)
    if request.file_id == NO_FILE:
        check_replication(request.replication)
    if request.after is not None:
        _check_policy(request.after.policy)


def check_reopen_block(request: ReopenBlock) -> None:
    """Raise InvalidRequestError when no writer can go on in a block like this."""
    check_writer(request.writer)
    _check_window(request.window)
    _demand(request.size_bytes >= 0, f"{request.size_bytes} bytes: a chunk has none or more")
    _demand(request.chunks >= 1, f"{request.chunks} chunks: a block has at least one")


def check_finalize(request: FinalizeBlock, config: NameNodeConfig) -> None:
    """Raise InvalidRequestError for a length that no block has."""
    check_writer(request.writer)
    length, size = request.length, request.size_bytes
    _demand(
        0 <= length <= config.max_chunks_per_block,
        f"block {request.block}: {length} chunks; a block has at most "
        f"{config.max_chunks_per_block}",
    )
    # A chunk may be empty: a writer sends one so that those before it are synced.
    _demand(
        size >= 0 and (length > 0 or size == 0),
        f"block {request.block}: {length} chunks cannot have {size} bytes",
    )


def check_rebuild(request: RebuildBlock) -> None:
    """Raise InvalidRequestError for a rebuild that no writer may ask for."""
    check_writer(request.writer)
    _check_policy(request.policy)


def _check_policy(policy: Policy) -> None:
    _demand(
        policy.replacement is not Replacement.DISABLE,
        "policy 'disable': DataNodes that fail are not replaced; a writer asks for 'never'",
    )


def check_bad_replica(request: BadReplica) -> None:
    """Raise InvalidRequestError for a report that names no storage."""
    check_id("a storage's", request.storage)


def check_heartbeat(request: Register, stale_after_s: float) -> None:
    """Raise InvalidRequestError for a DataNode that would be stale between its own heartbeats."""
    _demand(
        0 <= request.heartbeat_s <= stale_after_s,
        f"DataNode {request.node}: heartbeat_interval = {request.heartbeat_s:g}s is more than "
        f"datanode_stale_after = {stale_after_s:g}s of the NameNodes",
    )


def check_register(request: Register) -> None:
    """Raise InvalidRequestError for a DataNode that cannot be told apart or reached."""
    check_id("a DataNode's", request.node)
    if request.cluster:
        check_id("a cluster's", request.cluster)
    host, colon, port = request.address.rpartition(":")
    _demand(
        bool(host and colon) and port.isdecimal(),
        f"DataNode {request.node}: {request.address!r} is not an address: host:port",
    )
    _demand(
        is_rack(request.rack),
        f"DataNode {request.node}: {request.rack!r} is not a rack: a path such as /dc1/r7",
    )
    _check_host(f"DataNode {request.node}: ", request.host)
    storages = [report.storage for report in request.storages]
    for entered in request.timelines:
        for timeline in (entered.timeline, *entered.before):
            _demand(
                len(timeline) <= WRITER_CHARACTERS_MAX,
                f"DataNode {request.node}: a timeline of {len(timeline)} characters",
            )
        check_id("a storage's", entered.storage)
    for storage in storages:
        check_id("a storage's", storage)
    _demand(
        len(set(storages)) == len(storages), f"DataNode {request.node}: two storages have one id"
    )


def check_balance(request: Balance) -> None:
    """Raise InvalidRequestError for a balance that makes no sense."""
    check_id("a balancer's", request.balancer, WRITER_CHARACTERS_MAX)
    _demand(0 < request.threshold <= 1, f"threshold {request.threshold}: above 0, at most 1")
    bandwidth = request.bandwidth_bytes_per_s
    _demand(bandwidth is None or bandwidth > 0, f"bandwidth {bandwidth} bytes/s: above 0")


def check_report(request: BlockReport) -> None:
    """Raise InvalidRequestError for a report without a sender, or of a block outside its range."""
    check_id("a DataNode's", request.node)
    check_id("a storage's", request.storage)
    if (covers := request.covers) is None:
        return
    where = f"storage {request.storage}: a report of the blocks {covers.after + 1} to {covers.last}"
    _demand(covers.after < covers.last, f"{where} is of none")
    _demand(not request.deleted, f"{where} names deleted ones")
    living = (each.state.block for each in request.replicas)
    named = chain(living, (each.block for each in request.dead))
    _demand(all(covers.after < block <= covers.last for block in named), f"{where} names another")


def _check_version(application: ApplicationVersion) -> None:
    check_id("an application's", application.app_id, APPLICATION_CHARACTERS_MAX)
    check_id("an attempt's", application.attempt, WRITER_CHARACTERS_MAX)
    _demand(
        0 <= application.version <= VERSION_MAX,
        f"version {application.version} of {application.app_id}: 0 to {VERSION_MAX}",
    )
    if application.keep_for_s is not None:
        check_seconds("keep for", application.keep_for_s)


def check_seconds(what: str, seconds: float) -> None:
    """Raise InvalidRequestError for an impossible time."""
    _demand(
        0 < seconds <= SECONDS_MAX,
        f"{what} {_as_written(seconds)}: more than 0, at most {SECONDS_MAX} s",
    )


def _as_written(seconds: float) -> str:
    """Return the seconds in the unit in which a person writes them; a caller may send any."""
    return format_duration(seconds) if 0 <= seconds <= SECONDS_MAX else f"{seconds:g} s"


def check_block_size(size_bytes: int, path: str = "") -> None:
    """Raise InvalidRequestError for a block without room, of a file at `path`."""
    if size_bytes <= 0:
        where = f"{paths.shown(path)}: " if path else ""
        raise InvalidRequestError(f"{where}block size {size_bytes} bytes")


def check_issue_token(request: IssueToken) -> None:
    """Raise InvalidRequestError for a token that there cannot be."""
    _demand(
        0 < request.for_s <= LONGEST_S,
        f"for {_as_written(request.for_s)}: a token is good for some time, at most seven days",
    )
    every = sum(TokenRight)
    _demand(
        0 < request.rights <= every,
        f"a token has one right or several of {', '.join(TokenRight(every).names)}",
    )
    _demand(
        len(request.purpose) <= PURPOSE_CHARACTERS_MAX
        and (request.purpose == "" or request.purpose.isprintable()),
        f"a purpose has at most {PURPOSE_CHARACTERS_MAX} printable characters",
    )
    check_groups(request.groups)
    for name in (*request.groups, *([request.user] if request.user else [])):
        _demand(is_user(name), f"{name[:40]!r} is no user or group: {NAME_EXPECTED}")


def check_groups(groups: tuple[str, ...]) -> None:
    """Raise InvalidRequestError for more groups than a token has room for."""
    _demand(
        sum(len(each.encode()) for each in groups) <= GROUPS_BYTES_MAX,
        f"the groups of a token have at most {GROUPS_BYTES_MAX} bytes: name those that it needs",
    )


def check_writer(writer: WriterId) -> None:
    """Raise InvalidRequestError for an id that is not that of a client's writer."""
    check_id("a writer's", writer, WRITER_CHARACTERS_MAX)
    if writer == RECOVERY_WRITER:
        raise InvalidRequestError(f"'{RECOVERY_WRITER}' is not a client's writer id")


def check_id(whose: str, text: str, longest: int = NODE_CHARACTERS_MAX) -> None:
    """Raise InvalidRequestError for an id that is empty, too long, or cannot be shown."""
    if not (0 < len(text) <= longest and text.isprintable()):
        raise InvalidRequestError(f"{whose} id has 1 to {longest} printable characters")


def _check_host(where: str, host: str) -> None:
    _demand(host == "" or is_host(host), f"{where}{host!r} is not a machine's name")


def check_replication(replication: int) -> None:
    """Raise InvalidRequestError for an impossible number of replicas."""
    if not 1 <= replication <= REPLICATION_MAX:
        raise InvalidRequestError(f"replication {replication}: 1 to {REPLICATION_MAX} replicas")


def check_permission(permission: int) -> None:
    """Raise InvalidRequestError for bits that are not a permission."""
    if not 0 <= permission <= PERMISSION_MAX:
        raise InvalidRequestError(f"permission {permission:o}: 0 to {PERMISSION_MAX:o} (octal)")


def check_owner(owner: str) -> None:
    """Raise InvalidRequestError for a name that is too long for an owner."""
    if len(owner) > NAME_CHARACTERS_MAX:
        raise InvalidRequestError(f"an owner's name has at most {NAME_CHARACTERS_MAX} characters")


def _demand(condition: bool, message: str) -> None:
    """Raise InvalidRequestError unless the condition holds. What each create and mkdirs checks does
    without it: to format the message takes longer than the check."""
    if not condition:
        raise InvalidRequestError(message)
