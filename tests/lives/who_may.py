"""Several users with different rights at work on one tree, and HDFS's rules for what each may do.

Every state of the tree that a NameNode applies is compared with the one before it: requests that
are under way must explain the change, and HDFS's Permissions Guide (the model of
`tests/namenode`) must let their users make them in the state in which they were made. A refusal
must have been right in a state that was there while the user waited, and so must an answer that
changed nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from paxosblock.api.namenode import Kind
from paxosblock.api.ownership import CHECK_ACCESS, CheckAccess
from paxosblock.api.transaction import (
    AclChange,
    ChangeAcl,
    Delete,
    MakeDirectory,
    Operation,
    Rename,
    SetOwner,
    SetPermission,
)
from paxosblock.base.acl_entries import full_acl, parse_acl
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import Outcome, PaxosBlockError, PermissionDeniedError
from paxosblock.host.user import claimed_user
from paxosblock.namenode.catalog import acls, keys, tree
from paxosblock.namenode.catalog.draft import inode_of
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import ROOT_ID, DirectoryInode, Inode
from paxosblock.namenode.kv.interface import View
from paxosblock.namenode.kv.state_machine import StateMachine
from tests.lives.cluster import CLIENT_CONFIG, GROUPS, Cluster
from tests.lives.users import PATIENCE_S, File, all_ended
from tests.lives.world import World
from tests.memory_table import MemoryTable
from tests.namenode import acl_model, rights_model
from tests.namenode.rights_model import HdfsModel, R, W, X, above

TOP: Final = "/w"
"""The directory in which all happens."""
PATHS: Final = tuple(f"{TOP}/{a}{rest}" for a in "ab" for rest in ("", "/c", "/d", "/c/e", "/d/e"))
MODES: Final = (0o777,) * 4 + (0o755, 0o755, 0o750, 0o770, 0o711, 0o700, 0o1777, 0o733, 0o070)
ACLS: Final = (
    "user::rwx,group::---,other::rwx,user:ann:r-x",
    "user::rwx,group::rwx,other::---,user:bob:rwx,mask::r-x",
    "user::rwx,group::r-x,other::rwx,group:ops:rwx,group:dev:---",
    "user::rwx,group::rwx,other::---,user:cy:rwx,default:user:ann:rwx",
    "default:user:cy:rwx,default:group:dev:---,default:other::rwx",
)
SUPERUSER: Final = Actor(claimed_user(), superuser=True)
ACTORS: Final = (*(Actor(user, frozenset(of)) for user, of in GROUPS), SUPERUSER)
PROGRAMS: Final = tuple(zip(ACTORS * 2, (0o022, 0o007, 0o077, 0, 0, 0, 0o027, 0o022), strict=True))
"""Each user runs two, which make things with a umask."""
LATE_S: Final = 120.0
"""After so long a request whose outcome is not known has been made or never will be."""
EVERY_S: Final = 0.5
TOGETHER_MAX: Final = 4
"""The most requests that one entry of the log makes; more have not been seen."""


@dataclass(frozen=True, slots=True)
class Node:
    """A file or directory, as far as that decides who may do what with it."""

    kind: Kind
    owner: str
    group: str
    permission: int
    acl: tuple[tuple[str, int], ...]
    number: int = field(compare=False)

    @property
    def has_acl(self) -> bool:
        """True if there are entries that the permission does not tell."""
        return len(self.acl) > len(acl_model.BASE)

    @property
    def texts(self) -> acl_model.Texts:
        """All entries."""
        return dict(self.acl)

    def with_acl(self, acl: acl_model.Texts) -> Node:
        """Return it with another list, of which the bits are shown."""
        bits = self.permission & 0o1000 | acl_model.mode_of(acl)
        return replace(self, permission=bits, acl=tuple(sorted(acl.items())))


State = dict[str, Node]
"""The tree by path: the root, and all that is in `TOP`."""


class ImpossibleError(Exception):
    """Whoever asked, this cannot be done with this tree."""


def unchanged(state: State, _actor: Actor) -> State:
    """Return the tree after a request that changes nothing that decides about rights."""
    return state


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a request asks for."""

    allows: Callable[[HdfsModel], bool]
    after: Callable[[State, Actor], State] = unchanged


@dataclass(slots=True, eq=False)
class Asked:
    """A request that is under way."""

    what: str
    actor: Actor
    steps: tuple[Step, ...]
    since: int
    """The number of states of the tree that there were."""
    made: bool = False
    """It explains a change of the tree."""

    def allowed(self, state: State) -> bool:
        """True if the user may do all of it in this state, as far as it can be done."""
        try:
            return self._walked(state) is not None
        except ImpossibleError:
            return True

    def after(self, state: State) -> State | None:
        """Return the tree after it; None where it is refused, or cannot be done."""
        try:
            return self._walked(state)
        except ImpossibleError:
            return None

    def _walked(self, state: State) -> State | None:
        for step in self.steps:
            if not step.allows(model_of(state, self.actor)):
                return None
            state = step.after(state, self.actor)
        return state


def model_of(state: State, actor: Actor) -> HdfsModel:
    """Return the rules for this user, in this state."""
    return HdfsModel(state, {path: node.texts for path, node in state.items()}, actor)


# --- what requests ask for ------------------------------------------------------------------------


def at(path: str, bits: int) -> Step:
    """The way to a path, and `bits` there."""
    return Step(lambda model: model.traversed(path) and model.may(path, bits))


def listing(path: str) -> Step:
    """READ and EXECUTE on a directory; a file is shown."""

    def allows(model: HdfsModel) -> bool:
        return model.traversed(path) and (not model.is_directory(path) or model.may(path, R | X))

    return Step(allows)


def whole_subtree(path: str) -> Step:
    """READ and EXECUTE on each directory from the path down."""

    def allows(model: HdfsModel) -> bool:
        below = (each for each in model.shown if each == path or each.startswith(f"{path}/"))
        return model.traversed(path) and all(
            model.may(each, R | X) for each in below if model.is_directory(each)
        )

    return Step(allows)


def by_number(number: int) -> Step:
    """To write an open file by its id: its owner, or WRITE on it."""

    def allows(model: HdfsModel) -> bool:
        found = [path for path, node in model.shown.items() if node.number == number]  # type: ignore[attr-defined]  # of a State
        return all(
            model.shown[path].owner == model.actor.user or model.may(path, W) for path in found
        )

    return Step(allows)


def made(path: str, mode: int, umask: int, kind: Kind, *, replaces: bool = False) -> Step:
    """A directory or file, and the directories on the way to it."""

    def after(state: State, actor: Actor) -> State:
        if path in state and state[path].kind is Kind.DIRECTORY is kind:
            return state
        if path in state and not (replaces and state[path].kind is kind):
            raise ImpossibleError
        state = dict(state)
        for each in [*above(path)[2:], path]:
            if each == path:
                asked, way, made_kind = mode, 0, kind
            elif each in state:
                if state[each].kind is Kind.FILE:
                    raise ImpossibleError
                continue
            else:
                way, made_kind = 0o300, Kind.DIRECTORY
                asked = 0o777 if kind is Kind.FILE else mode & 0o777 | way
            parent = state[above(each)[-1]]
            decides = any(words.startswith(acl_model.DEFAULT) for words, _ in parent.acl)
            bits = asked if decides else asked & ~umask | way
            acl = acl_model.inherited(
                parent.texts, bits & 0o777, directory=made_kind is Kind.DIRECTORY
            )
            node = Node(made_kind, actor.user, parent.group, bits & 0o1000, (), 0)
            state[each] = node.with_acl(acl)
        return state

    creates = rights_model.creates(path, replaces)

    def allows(model: HdfsModel) -> bool:
        if kind is Kind.DIRECTORY and model.is_directory(path):
            return model.traversed(path)  # nothing is made
        return creates(model)

    return Step(allows, after)


def moved(source: str, to: str, *, overwrite: bool) -> Step:
    """A rename."""

    def after(state: State, _actor: Actor) -> State:
        there = state.get(to)
        parent = state.get(above(to)[-1])
        if source not in state or to.startswith(f"{source}/") or parent is None:
            raise ImpossibleError
        if source == to:
            return state
        files = there is not None and there.kind is state[source].kind is Kind.FILE
        if parent.kind is Kind.FILE or (there is not None and not (overwrite and files)):
            raise ImpossibleError
        return {
            to + path.removeprefix(source) if _is_in(path, source) else path: node
            for path, node in state.items()
            if path != to
        }

    return Step(rights_model.moves(source, to, overwrite), after)


def deleted(path: str, *, recursive: bool) -> Step:
    """A delete; of what is not there it changes nothing."""

    def after(state: State, _actor: Actor) -> State:
        if not recursive and any(each.startswith(f"{path}/") for each in state):
            raise ImpossibleError
        return {each: node for each, node in state.items() if not _is_in(each, path)}

    deletes = rights_model.deletes(path, recursive)
    return Step(
        lambda model: deletes(model) if path in model.shown else model.traversed(path), after
    )


def joined(to: str, source: str) -> Step:
    """A concat: the source is gone."""

    def after(state: State, _actor: Actor) -> State:
        if source == to or source not in state or to not in state:
            raise ImpossibleError
        return {each: node for each, node in state.items() if each != source}

    return Step(rights_model.joins(to, source), after)


def _is_in(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")


def _of_owner(path: str, change: Callable[[Node], Node | None], *more: bool) -> Step:
    """A change of who may do what, for the owner, to whom `more` must hold."""

    def allows(model: HdfsModel) -> bool:
        mine = path not in model.shown or model.shown[path].owner == model.actor.user
        return model.traversed(path) and (model.actor.superuser or (mine and all(more)))

    def after(state: State, _actor: Actor) -> State:
        node = change(state[path]) if path in state else None
        if node is None:
            raise ImpossibleError
        return state | {path: node}

    return Step(allows, after)


def chmod(path: str, mode: int) -> Step:
    """Other bits; of a list they are the owner's, the mask's and others'."""

    def change(node: Node) -> Node:
        return replace(node, permission=mode).with_acl(acl_model.chmod(node.texts, mode))

    return _of_owner(path, change)


def chown(path: str, actor: Actor, owner: str, group: str) -> Step:
    """Another owner and group, "" for the same: an owner may only choose among their groups."""

    def change(node: Node) -> Node:
        return replace(node, owner=owner or node.owner, group=group or node.group)

    return _of_owner(path, change, owner in ("", actor.user), not group or group in actor.groups)


def change_acl(path: str, how: AclChange, written: str) -> Step:
    """Another list."""
    spec = acl_model.texts(parse_acl(written))

    def change(node: Node) -> Node | None:
        directory = node.kind is Kind.DIRECTORY
        acl = acl_model.changed(node.texts, how.value, spec, directory=directory)
        return None if acl is None else node.with_acl(acl)

    return _of_owner(path, change)


# --- the users ------------------------------------------------------------------------------------


@dataclass(slots=True)
class User:
    """A program of one of them, and the umask with which it makes things."""

    actor: Actor
    umask: int
    rng: random.Random


Act = Callable[["WhoMay", AsyncClient, User], Awaitable[None]]


@dataclass(slots=True)
class WhoMay:
    """The users, and the states of their tree; stands where `Users` stands in a life."""

    world: World
    cluster: Cluster
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    over: bool = False
    _running: list[asyncio.Task[None]] = field(default_factory=list)
    _states: list[State] = field(default_factory=lambda: [{}])
    _applied: int = 0
    """The last entry of the log after which the tree was looked at."""
    _asked: list[Asked] = field(default_factory=list)
    """Requests that are under way, and those of which no answer came."""
    _begun: bool = False

    def start(self, writers: int, readers: int) -> None:
        """Let them begin: as many as `PROGRAMS` says, however many others have."""
        self.world.applied.append(self._look)
        for actor, umask in PROGRAMS:
            user = User(actor, umask, random.Random(self.rng.random()))
            host = self.world.new_host()
            self.world.network.users[host] = actor.user
            self._running.append(host.run(self._act(user)))

    async def end(self) -> None:
        """Let each end what they have begun, and wait for that."""
        self.over = True
        await all_ended(self.world, self._running, 2 * PATIENCE_S)

    def alive(self) -> list[File]:
        """Return no file: others than these users change none of theirs."""
        return []

    async def check(self, fs: AsyncClient, file: File) -> None:
        """There is no file to check."""

    async def _act(self, user: User) -> None:
        config = replace(CLIENT_CONFIG, umask=user.umask)
        async with AsyncClient([*self.cluster.namenodes.addresses], config) as fs:
            while not self.over:
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        if self._begun:
                            await user.rng.choice(ACTS)(self, fs, user)
                        elif user.actor.superuser:
                            await self._begin(fs)
                except PaxosBlockError as error:
                    self.counts[f"refused {type(error).__name__}"] += 1
                except TimeoutError:
                    self.world.mistake(f"{user.actor.user} waits longer than {PATIENCE_S:g} s")
                now = self.world.loop.now
                together_s = EVERY_S - now % EVERY_S  # many at once, which is decided as one change
                alone_s = user.rng.uniform(0.02, EVERY_S)
                await self.world.loop.pass_time(user.rng.choice((alone_s, together_s, together_s)))

    async def _begin(self, fs: AsyncClient) -> None:
        await fs.mkdirs(TOP, permission=0o777)
        self._begun = True

    # -- what happens to the tree -----------------------------------------------------------------

    def _look(self, table: MemoryTable, changed: Iterable[bytes]) -> None:
        """An entry was applied, somewhere: look at the tree if it is the first time."""
        if table.revision <= self._applied:
            return
        self._applied = table.revision
        if not any(key[:1] in (b"e", b"i") for key in changed):
            return
        before, after = self._states[-1], state_of(StateMachine(table))
        if before == after and [*map(_number, before.values())] == [*map(_number, after.values())]:
            return
        self._states.append(after)
        if self._begun and before != after and not self._explained(before, after):
            self._mistaken(before, after)

    def _explained(self, before: State, after: State) -> bool:
        for count in range(1, TOGETHER_MAX + 1):
            for made_now in self._ways(before, after, count, self._asked):
                for each in made_now:
                    each.made = True
                self.counts["changes made together"] += count > 1
                return True
        return False

    def _ways(
        self, state: State, after: State, count: int, left: list[Asked]
    ) -> Iterator[list[Asked]]:
        """Yield requests, `count` of those `left`, that lead from a state to the one `after`."""
        for each in left:
            next_state = each.after(state)
            if next_state is None or next_state == state:
                continue
            if count == 1 and next_state == after:
                yield [each]
            elif count > 1:
                others = [other for other in left if other is not each]
                for rest in self._ways(next_state, after, count - 1, others):
                    yield [each, *rest]

    def _mistaken(self, before: State, after: State) -> None:
        for path in sorted({*before} | {*after}):
            if (was := before.get(path)) != (now := after.get(path)):
                self.world.note(f"  {path}: {was} became {now}")
        for each in self._asked:
            refused = "" if each.allowed(before) else ", who may not"
            self.world.note(f"  under way: {each.what} by {each.actor.user}{refused}")
        self.world.mistake("the tree changed as no user may change it who asked for that")

    # -- requests ---------------------------------------------------------------------------------

    async def ask(self, user: User, what: str, doing: Awaitable[Any], *steps: Step) -> Any:
        """Wait for a request, and judge its answer. Raises what the client does."""
        asked = Asked(what, user.actor, steps, len(self._states))
        self._asked.append(asked)
        kind = what.partition(" ")[0]
        try:
            done = await doing
        except PermissionDeniedError:
            self._asked.remove(asked)
            self.counts[f"{kind} denied"] += 1
            if all(map(asked.allowed, self._since(asked))):
                self._tell_wrong(asked, "refused, and may do it")
            raise
        except BaseException as error:
            if isinstance(error, PaxosBlockError) and error.outcome is Outcome.NEVER:
                self._asked.remove(asked)
            else:
                self.world.loop.in_world(LATE_S, self._asked.remove, asked)
            raise
        self._asked.remove(asked)
        self.counts[f"{kind} done"] += 1
        if not asked.made and not any(map(asked.allowed, self._since(asked))):
            self._tell_wrong(asked, "let in, and may not do it")
        return done

    def _since(self, asked: Asked) -> list[State]:
        """Return the states of the tree while the user waited."""
        return self._states[asked.since - 1 :]

    def _tell_wrong(self, asked: Asked, what: str) -> None:
        for state in self._since(asked):
            for path, node in sorted(state.items()):
                self.world.note(f"  {path}: {node}")
            self.world.note("  --")
        self.world.mistake(f"{asked.actor.user} was {what}: {asked.what}")

    def path(self, user: User) -> str:
        """Return a path that is there, or any other one."""
        there = [path for path in self._states[-1] if path not in ("/", TOP)]
        return user.rng.choice(there) if there and user.rng.random() < 0.7 else _any(user)


def _any(user: User) -> str:
    return user.rng.choice(PATHS)


def _number(node: Node) -> int:
    return node.number


def state_of(view: View) -> State:
    """Return the tree as the catalog has it."""
    root = inode_of(view, ROOT_ID)
    return {} if root is None else dict(_below(view, "/", root))


def _below(view: View, path: str, inode: Inode) -> Iterator[tuple[str, Node]]:
    directory = isinstance(inode, DirectoryInode)
    entries = full_acl(inode.permission, acls.entries_of(inode))
    acl = tuple(sorted(acl_model.texts(entries).items()))
    kind = Kind.DIRECTORY if directory else Kind.FILE
    yield path, Node(kind, inode.owner, inode.group, inode.permission, acl, inode.number)
    if directory:
        for key, value in view.scan(*keys.entries(inode.number)):
            below = f"{path.rstrip('/')}/{keys.name_in(key)}"
            child = inode_of(view, tree.unpack_target(value.value).number)
            if child is not None and _is_in(below, TOP):
                yield from _below(view, below, child)


# --- what they do ---------------------------------------------------------------------------------


async def _mkdirs(them: WhoMay, fs: AsyncClient, user: User) -> None:
    path, mode = _any(user), user.rng.choice(MODES)
    step = made(path, mode, user.umask, Kind.DIRECTORY)
    await them.ask(user, f"mkdirs {path} {mode:o}", fs.mkdirs(path, permission=mode), step)


async def _create(them: WhoMay, fs: AsyncClient, user: User) -> None:
    path, mode = _any(user), user.rng.choice((0o666, 0o600, 0o222))
    replaces = user.rng.random() < 0.5
    step = made(path, mode, user.umask, Kind.FILE, replaces=replaces)
    creating = fs.create(path, overwrite=replaces, permission=mode)
    out = await them.ask(user, f"create {path} {replaces}", creating, step)
    await _write(them, user, out)


async def _append(them: WhoMay, fs: AsyncClient, user: User) -> None:
    path = them.path(user)
    out = await them.ask(user, f"append {path}", fs.append(path), at(path, W))
    await _write(them, user, out)


async def _write(them: WhoMay, user: User, out: AsyncFileWriter) -> None:
    """Write some bytes, and close the file, by its id."""
    by_id = by_number(out.status.file_id)

    async def write() -> None:
        async with out:
            await out.write(b"abc")
            await them.world.loop.pass_time(user.rng.choice((0, 0, 1)))

    await them.ask(user, f"write {out.status.path}", write(), by_id)


async def _rename(them: WhoMay, fs: AsyncClient, user: User) -> None:
    source, to, overwrite = them.path(user), _any(user), user.rng.random() < 0.5
    step = moved(source, to, overwrite=overwrite)
    renaming = fs.rename(source, to, overwrite=overwrite)
    await them.ask(user, f"rename {source} {to} {overwrite}", renaming, step)


async def _delete(them: WhoMay, fs: AsyncClient, user: User) -> None:
    path, recursive = them.path(user), user.rng.random() < 0.6
    step = deleted(path, recursive=recursive)
    await them.ask(user, f"delete {path} {recursive}", fs.delete(path, recursive=recursive), step)


async def _concat(them: WhoMay, fs: AsyncClient, user: User) -> None:
    to, source = them.path(user), them.path(user)
    await them.ask(user, f"concat {to} {source}", fs.concat(to, [source]), joined(to, source))


async def _chmod(them: WhoMay, fs: AsyncClient, user: User) -> None:
    path, mode = user.rng.choice((TOP, them.path(user))), user.rng.choice(MODES)
    if user.actor.superuser and user.rng.random() < 0.5:
        mode = 0o777  # else soon none but superusers may do anything
    await them.ask(user, f"chmod {path} {mode:o}", fs.set_permission(path, mode), chmod(path, mode))


async def _chown(them: WhoMay, fs: AsyncClient, user: User) -> None:
    path = them.path(user)
    owner, group = user.rng.choice(ACTORS).user, user.rng.choice(("", "dev", "ops"))
    owner = owner if not group or user.rng.random() < 0.5 else ""
    step = chown(path, user.actor, owner, group)
    doing = fs.set_owner(path, owner or None, group or None)
    await them.ask(user, f"chown {path} {owner}:{group}", doing, step)


def _any_acl(user: User) -> tuple[AclChange, str]:
    how = user.rng.choice(tuple(AclChange))
    bare = how in (AclChange.REMOVE, AclChange.REMOVE_DEFAULT)
    return how, "" if bare else user.rng.choice(ACLS)


async def _setfacl(them: WhoMay, fs: AsyncClient, user: User) -> None:
    path, (how, spec) = them.path(user), _any_acl(user)
    doing = fs._change_acl(path, how, parse_acl(spec))
    await them.ask(user, f"{how.value} {path} {spec}", doing, change_acl(path, how, spec))


async def _transact(them: WhoMay, fs: AsyncClient, user: User) -> None:
    pairs = [_operation(them, user) for _ in range(user.rng.randint(1, 3))]
    operations = [operation for operation, _ in pairs]
    steps = (step for _, step in pairs)
    await them.ask(user, f"transact {operations}", fs.transact(operations), *steps)


def _operation(them: WhoMay, user: User) -> tuple[Operation, Step]:
    path, to, mode = them.path(user), _any(user), user.rng.choice(MODES)
    how, spec = _any_acl(user)
    ways: tuple[tuple[Operation, Step], ...] = (
        (MakeDirectory(to), made(to, 0o777, user.umask, Kind.DIRECTORY)),
        (Rename(path, to), moved(path, to, overwrite=False)),
        (Delete(path, recursive=True), deleted(path, recursive=True)),
        (SetPermission(path, mode), chmod(path, mode)),
        (SetOwner(path, group="dev"), chown(path, user.actor, "", "dev")),
        (ChangeAcl(path, how, parse_acl(spec)), change_acl(path, how, spec)),
    )
    return user.rng.choice(ways)


async def _look_at(them: WhoMay, fs: AsyncClient, user: User) -> None:
    """Read something, or change what decides about no right."""
    path = them.path(user)

    async def read() -> None:
        async with await fs.open(path):
            pass

    async def walk() -> None:
        async for _ in fs.walk(path, one_state=True):
            pass

    async def access() -> None:
        await fs._session.namenodes.call(CHECK_ACCESS, CheckAccess(path, read=True, write=True))

    ways: tuple[tuple[str, Callable[[], Awaitable[object]], Step], ...] = (
        ("open", read, at(path, R)),
        ("stat", lambda: fs.stat(path), at(path, 0)),
        ("getfacl", lambda: fs.get_acl_status(path), at(path, 0)),
        ("list", lambda: fs.ls(path), listing(path)),
        ("summary", lambda: fs.content_summary(path), whole_subtree(path)),
        ("walk", walk, whole_subtree(path)),
        ("setrep", lambda: fs.set_replication(path, 2), at(path, W)),
        ("touch", lambda: fs.set_times(path, 1e9), at(path, W)),
        ("access", access, at(path, R | W)),
        ("recover", lambda: fs.take_over(path), at(path, W)),
    )
    kind, doing, step = user.rng.choice(ways)
    await them.ask(user, f"{kind} {path}", doing(), step)


ACTS: Final[tuple[Act, ...]] = (
    *(_mkdirs, _mkdirs, _create, _create, _append, _rename, _delete, _concat),
    *(_chmod, _chmod, _chown, _setfacl, _transact, _look_at, _look_at, _look_at),
)
