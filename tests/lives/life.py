"""One life: a cluster, its users, what happens to it by chance, and then a while of quiet."""

from __future__ import annotations

import asyncio
import enum
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from paxosblock.api.care import BALANCE, SET_ADMIN_STATE, AdminState, Balance, SetAdminState
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.catalog.keys import BLOCK_KEYS
from tests.disks.simulated import ROOMY
from tests.lives.clerks import Clerks
from tests.lives.cluster import BLOCK_BYTES, Cluster, Machine
from tests.lives.errands import ERRANDS, stay_in_safe_mode
from tests.lives.folders import Folders
from tests.lives.keepsakes import Keepsakes
from tests.lives.memories import HISTORY_S, Memories
from tests.lives.one_file import OneFile
from tests.lives.onlookers import Onlookers
from tests.lives.pairs import Pair
from tests.lives.restoring import Restore
from tests.lives.rivals import Rivals
from tests.lives.seams import Seams
from tests.lives.strangers import OF_DATANODES, OF_NAMENODES, try_door, try_stream
from tests.lives.trouble import Trouble
from tests.lives.users import PATIENCE_S, Users
from tests.lives.volumes import Volumes
from tests.lives.who_may import WhoMay
from tests.lives.world import World, new_world
from tests.lives.wrong_flags import WrongFlags
from tests.memory_table import MemoryTable

THRESHOLD: Final = BLOCK_BYTES / ROOMY
"""The distance of a storage's use from the mean that those allow who ask for balance."""
TROUBLE_S: Final = 75.0
LOOK_EVERY_S: Final = 0.25
RESTORE_EVERY: Final = 3
"""In one of so many lives a backup is brought back."""
FOLDERS_EVERY: Final = 3
"""In one of so many lives folders of NameNodes are damaged."""
VOLUMES_EVERY: Final = 3
"""In one of so many lives volumes of DataNodes are emptied, swapped, copied and damaged."""
SEAMS_EVERY: Final = 2
"""In one of so many lives a user starts services on blocks at which others are at work."""
FULL_EVERY: Final = 5
"""In one of so many lives a disk is full when a machine is lost: each is rare, and lasts for
seconds, so that by chance they met in none of 74 lives."""
HISTORY_EVERY: Final = 3
"""In one of so many lives of the kind `snapshots` a window of history is kept."""
FLAGS_EVERY: Final = 5
"""In one of so many lives DataNodes are started with wrong options."""
WHOLE_WITHIN_S: Final = 200.0
"""Of quiet, in virtual time."""
ENDS_WITHIN_S: Final = 1_200.0
"""In virtual time; most lives end after two minutes."""


AnyUsers = Users | OneFile | Rivals | WhoMay


class Kind(enum.Enum):
    """The users of a life."""

    FILES = "files"
    """Each has files of its own."""
    ONE_FILE = "one-file"
    """One writes, cuts and renames a file that others read."""
    RIVALS = "rivals"
    """Several take a file from each other."""
    WHO_MAY = "who-may"
    """Several with different rights change names, and who may do what with them."""
    SIGNED = "signed"
    """As of the kinds `files` and `rivals`, where DataNodes serve only what a NameNode signed, with
    a key that is another one each second."""
    WATCHED = "watched"
    """As of the kinds `files` and `rivals`, while some watch all names, and clerks set quotas and
    fill them."""
    SNAPSHOTS = "snapshots"
    """As of the kinds `files` and `one-file`, while somebody takes, reads and ends snapshots; in
    some a window of history is kept, too, and somebody looks back and undeletes."""


def _files_or_rivals(world: World, cluster: Cluster, rng: random.Random) -> AnyUsers:
    return rng.choice((Users, Rivals))(world, cluster, rng)


def _files_or_one(world: World, cluster: Cluster, rng: random.Random) -> AnyUsers:
    return rng.choice((Users, OneFile))(world, cluster, rng)


_USERS: Final[dict[Kind, Callable[..., AnyUsers]]] = {
    Kind.FILES: Users,
    Kind.ONE_FILE: OneFile,
    Kind.RIVALS: Rivals,
    Kind.WHO_MAY: WhoMay,
    Kind.SIGNED: _files_or_rivals,
    Kind.WATCHED: _files_or_rivals,
    Kind.SNAPSHOTS: _files_or_one,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a life: `mistakes` is empty when everything held all the time, `unfinished`
    when all was whole after the quiet.
    """

    seed: int
    mistakes: tuple[str, ...]
    unfinished: tuple[str, ...]
    trace: tuple[str, ...] = field(repr=False)
    counts: Counter[str]
    calls: Counter[str] = field(repr=False)
    """The number of times that each control call was made."""
    services: Counter[Pair] = field(repr=False)
    faults: Counter[Pair] = field(repr=False)
    """The pairs of services that were at work on one block at once, and of faults at once."""


class Life(Trouble):
    """The life of one seed."""

    def __init__(self, seed: int, world: World, kind: Kind) -> None:
        self._signed = kind is Kind.SIGNED
        looks_back = kind is Kind.SNAPSHOTS and seed % HISTORY_EVERY == 2
        history_s = HISTORY_S if looks_back else 0.0
        super().__init__(seed, world, signed=self._signed, history_s=history_s)
        self.users = _USERS[kind](world, self.cluster, random.Random(world.rng.random()))
        self._admin = world.new_host()
        looked_at = kind in (Kind.SNAPSHOTS, Kind.WATCHED)
        may_restore = isinstance(self.users, Users | Rivals) and not looked_at
        self._restores = may_restore and seed % RESTORE_EVERY == 0
        self.may_cut = not self._restores
        """Own files may be cut and joined, and DataNodes upgraded: a backup that was taken before
        shows other files, and keeps such DataNodes out."""
        if isinstance(self.users, Rivals):
            self.users.cuts = self.may_cut
        if self._signed:
            world.applied.append(self._count_keys)
        if seed % FULL_EVERY == 3:
            self.full_when_lost = random.Random(f"{seed} full")
        with_seams = seed % SEAMS_EVERY == 0 and not isinstance(self.users, WhoMay)
        self._seams = Seams(self) if with_seams else None
        self._keepsakes = Keepsakes(self) if kind is Kind.SNAPSHOTS else None
        self._memories = Memories(self) if looks_back else None
        self._onlookers = Onlookers(self) if kind is Kind.WATCHED else None
        self._clerks = Clerks(self) if kind is Kind.WATCHED else None

    async def run(self) -> Outcome:
        """Live to the end, which is a mistake if it does not come."""
        unfinished: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                unfinished = await self._live()
        except TimeoutError:
            self.world.mistake(f"not at its end after {ENDS_WITHIN_S:g} s")
        return self._outcome(unfinished)

    async def _live(self) -> tuple[str, ...]:
        """Return what is not whole in the end."""
        self.cluster.namenodes.begin()
        self.users.start(writers=2, readers=2)
        watching = self.loop.create_task(self._watch())
        if self._onlookers is not None:
            self._onlookers.start()
        others = [self.loop.create_task(each) for each in self._others()]
        await self._trouble()
        for other in others:
            await other
        await self._heal()
        await self.users.end()
        if self._seams is not None:
            await self._seams.end()
        if self._keepsakes is not None:
            await self._keepsakes.end()
        if self._memories is not None:
            await self._memories.end()
        if self._clerks is not None:
            await self._clerks.end()
        if self._onlookers is not None:
            await self._onlookers.end()
        await self._say_again()
        unfinished = await self._become_whole()
        watching.cancel()
        await self._read_all()
        return unfinished

    def _outcome(self, unfinished: tuple[str, ...]) -> Outcome:
        counts = self.counts + self.users.counts + self.checker.counts
        for refused in (each for each in counts if each.endswith(" AccessDeniedError")):
            self.world.mistake(f"a capability was refused: {refused}")
        counts += self.world.network.promises.counts
        mistakes, trace = tuple(self.world.mistakes), tuple(self.world.trace)
        pairs, calls = self.world.pairs, self.world.network.promises.calls
        return Outcome(
            self.seed,
            mistakes,
            unfinished,
            trace,
            counts,
            calls,
            pairs.of_services,
            pairs.of_faults,
        )

    def _count_keys(self, _: MemoryTable, written: Iterable[bytes]) -> None:
        self.counts["block keys changed"] += BLOCK_KEYS in written

    def _others(self) -> Iterator[Coroutine[None, None, None]]:
        """Yield what takes longer than a blow, and happens in some lives only."""
        if self._restores:
            assert isinstance(self.users, Users | Rivals)
            yield Restore(self, self.users).run()
        if self._seams is not None:
            yield self._seams.run(TROUBLE_S)
        if self._keepsakes is not None:
            yield self._keepsakes.run(TROUBLE_S)
        if self._memories is not None:
            yield self._memories.run(TROUBLE_S)
        if self._clerks is not None:
            yield self._clerks.run(TROUBLE_S)
        if self.seed % FOLDERS_EVERY == 1:
            yield Folders(self).run(TROUBLE_S)
        if self.seed % VOLUMES_EVERY == 2:
            yield Volumes(self).run(TROUBLE_S)
        if self.seed % FLAGS_EVERY == 2:
            yield WrongFlags(self).run(TROUBLE_S)

    async def _watch(self) -> None:
        while True:
            await self.loop.pass_time(LOOK_EVERY_S)
            self.checker.look()

    # -- what happens -----------------------------------------------------------------------------

    async def _trouble(self) -> None:
        events: tuple[tuple[int, Callable[[], object]], ...] = (
            (3, self._end_process),
            (3, self._cut_power),
            (3, self._destroy),
            (4, self._break_volume),
            (3, self._damage),
            (1, self._fill_disk),
            (2, self._pause),
            (2, self._cut_off),
            (2, self._bad_weather),
            (3, self._slow_streams),
            (4, self._namenode_trouble),
            (3, self._set_replication),
            (1, self._take_over),
            (1, self._decommission),
            (1, self._recommission),
            (2, self._maintain),
            (2, self.balance),
            # A DataNode whose clock is ahead by more than a capability is good refuses all.
            (not self._signed, self._jump_clock),
            (1, self._strange),
            (1, self._run_errands),
            (1, self._enter_safe_mode),
        )
        deck: list[Callable[[], object]] = []
        while self.loop.now < TROUBLE_S:
            if not deck:  # so that each has its turn, and none too many
                deck = [event for weight, event in events for _ in range(weight)]
                self.rng.shuffle(deck)
            await self.loop.pass_time(
                self.rng.choice((0.05, 0.5, 2.0, 6.0)) * self.rng.random() * 2
            )
            while self.truce:
                await self.loop.pass_time(0.5)
            self.checker.look()
            happen = self.owed_now() or deck.pop()
            happen()
            self.checker.rebase()

    # -- what an operator asks for ----------------------------------------------------------------

    def _set_replication(self) -> None:
        files = [file for file in self.users.alive() if file.closed]
        if files:
            recent = self.rng.choice((files, files[-2:]))  # whose members may lag behind
            file, count = self.rng.choice(recent), self.rng.choice((2, 3, 4))
            self._happens("setrep", file.path, str(count))
            self._ask(lambda fs: fs.set_replication(file.path, count))

    def _take_over(self) -> None:
        if files := [file for file in self.users.alive() if not file.closed]:
            file = self.rng.choice(files)
            self._happens("take over", file.path)
            self._ask(lambda fs: fs.take_over(file.path))

    def _decommission(self) -> None:
        machine = self._victim()
        if machine is not None and not machine.leaving:
            self._happens("decommission", machine.name)
            self.counts["members decommissioned"] += self.checker.holds_any(machine)
            machine.leaving = True
            self._ask(lambda fs: say_if_leaving(fs, machine))

    def _recommission(self) -> None:
        if leaving := [each for each in self.cluster.machines if each.leaving]:
            machine = self.rng.choice(leaving)
            self._happens("recommission", machine.name)
            machine.leaving = False
            self._ask(lambda fs: say_if_leaving(fs, machine))

    def _maintain(self) -> None:
        """A while without a node, told before; mostly it does go."""
        machine = self._victim()
        if machine is None or machine.leaving or self._in_maintenance(machine):
            return
        for_s, power_cut = self.rng.uniform(5, 25), self.rng.random() < 0.5
        self._happens("maintenance", machine.name)
        machine.maintained_until_s = self.loop.now + for_s

        async def maintain(fs: AsyncClient) -> None:
            await set_admin_state(fs, machine, AdminState.IN_MAINTENANCE, for_s)
            if self.loop.now < TROUBLE_S:
                self._go_down(machine, power_cut=power_cut)

        self._ask(maintain)

    def balance(self) -> None:
        """An operator asks for balance for a while, and leaves whether it is reached or not."""
        self._happens("balancer")
        balancer = f"balancer {self.counts['balancer']}"
        until_s = min(TROUBLE_S, self.loop.now + self.rng.uniform(2, 25))

        async def balance(fs: AsyncClient) -> None:
            moved: dict[str, int] = {}
            while self.loop.now < until_s:
                status = await fs._session.namenodes.call(BALANCE, Balance(balancer, THRESHOLD))
                self.counts["replicas moved"] += status.moved_blocks - moved.get(status.run, 0)
                moved[status.run] = status.moved_blocks
                await self.loop.pass_time(1.0)

        self._ask(balance)

    def _strange(self) -> None:
        """A stranger without the secret asks every node for something that would change it."""
        self._happens("stranger")
        host = self.world.new_host()
        self.world.network.strangers[host] = None
        network = self.world.network
        for seat in self.cluster.namenodes.seats:
            host.run(try_door(network, seat.address, OF_NAMENODES))
        for machine in self._up():
            host.run(try_door(network, machine.address, OF_DATANODES))
            host.run(try_stream(network, machine.address))

    def _run_errands(self) -> None:
        """An operator looks at the cluster, and asks it for small things."""
        self._happens("errands")
        files = self.users.alive()
        file = self.rng.choice(files) if files else None
        rng = random.Random(self.rng.random())
        for errand in ERRANDS:
            self._ask(partial(errand, rng=rng, file=file))

    def _enter_safe_mode(self) -> None:
        seconds = self.rng.uniform(0.2, 4)
        if self.checker.unclear:
            return  # he would leave that of the restore
        self._happens("safe mode")

        async def stay(fs: AsyncClient) -> None:
            self.in_safe_mode += 1
            await stay_in_safe_mode(fs, self.world, seconds)
            self.in_safe_mode -= 1

        self._ask(stay)

    def _ask(self, what: Callable[[AsyncClient], Awaitable[object]]) -> None:
        """Ask, and go on without the answer."""

        async def ask() -> None:
            try:
                async with self.cluster.new_client() as fs:
                    await what(fs)
            except PaxosBlockError as error:
                self.counts[f"admin refused {type(error).__name__}"] += 1
            except AssertionError as error:
                self.world.mistake(f"what an operator asked for is not so: {error}")

        self._admin.run(ask())

    # -- the end ----------------------------------------------------------------------------------

    async def _heal(self) -> None:
        """All that may come back does; what is gone for good stays gone."""
        self.make_truce()
        self._happens("quiet")

    async def _say_again(self) -> None:
        """Tell the NameNode once more who is to leave: it may not have heard."""

        async def say() -> None:
            async with self.cluster.new_client() as fs:
                for machine in self.cluster.machines:
                    while not await self._is_set(fs, machine):
                        await self.loop.pass_time(1.0)

        try:
            await self._admin.ask(say(), PATIENCE_S)
        except TimeoutError:
            down = [each.name for each in self.cluster.machines if each.node is None]
            self.world.mistake(f"an operator is not heard; not up are {down}")

    async def _is_set(self, fs: AsyncClient, machine: Machine) -> bool:
        try:
            await say_if_leaving(fs, machine)
        except PaxosBlockError:
            return False  # such as: it has not registered yet
        return True

    def _usable(self) -> frozenset[str]:
        return frozenset(each.name for each in self.cluster.machines if not each.leaving)

    async def _become_whole(self) -> tuple[str, ...]:
        """Wait until all is as it must be; return what is not, after so long."""
        end_s = self.loop.now + WHOLE_WITHIN_S
        while problems := self._unfinished():
            if self.loop.now > end_s:
                return tuple(problems)
            await self.loop.pass_time(1.0)
        self.counts["blocks whole"] += len(self.checker.blocks)
        self.world.note("all is whole")
        return ()

    def _unfinished(self) -> list[str]:
        if self.cluster.namenode is None:
            return ["the NameNode does not serve"]
        return self.checker.unfinished(self._usable())

    async def _read_all(self) -> None:
        """Every file, to its end, by a new user."""

        async def read() -> None:
            async with self.cluster.new_client() as fs:
                for file in self.users.alive():
                    try:
                        await self.users.check(fs, file)
                    except PaxosBlockError as error:
                        self.world.mistake(f"{file.path} cannot be read: {error}")

        await self._admin.ask(read(), 10 * PATIENCE_S)


async def say_if_leaving(fs: AsyncClient, machine: Machine) -> None:
    """Say whether a machine is to leave; if it is not, it is in service, and in no maintenance."""
    admin = AdminState.DECOMMISSIONED if machine.leaving else AdminState.IN_SERVICE
    await set_admin_state(fs, machine, admin)


async def set_admin_state(
    fs: AsyncClient, machine: Machine, admin: AdminState, for_s: float = 0.0
) -> None:
    """Say it as `paxosblock admin decommission` and its like do."""
    await fs._session.namenodes.call_once(
        SET_ADMIN_STATE, SetAdminState(machine.name, admin, for_s)
    )


def live(seed: int, kind: Kind = Kind.FILES) -> Outcome:
    """Live the life of `seed`; the same seed lives the same way."""
    with new_world(seed) as world:
        return world.loop.run_until_complete(Life(seed, world, kind).run())
