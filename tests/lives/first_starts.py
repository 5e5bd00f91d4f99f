"""The starts of NameNodes with `--new-cluster`, with `--join` and with neither, on simulated disks.

The folders are made and judged by the shipped code; what stands here is the HTTP between members.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from paxosblock.errors import ConfigError, PaxosBlockError, UnavailableError
from paxosblock.namenode.raft import vote_file
from paxosblock.namenode.raft.admissions_file import read_admissions
from paxosblock.namenode.raft.birth import ASK_AGAIN_S, SILENCE_S, Birth
from paxosblock.namenode.raft.folder_admission import (
    AdmissionRefused,
    FolderStatus,
    Lineage,
    may_join,
)
from paxosblock.namenode.raft.member_folder import (
    begin_newborn,
    check_member,
    check_owner,
    read_lineage,
)
from paxosblock.namenode.raft.new_member import clear
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.rpc import RpcClient
from tests.disks.simulated import SimulatedDisk
from tests.raft.virtual_time import VirtualTimeLoop

STANDING: Final = "raft_birth"
LET_IN: Final = "raft_seed"


class Flag(enum.Enum):
    """The option of a start."""

    NONE = ""
    NEW_CLUSTER = "--new-cluster"
    JOIN = "--join"


class Ask(msgspec.Struct, frozen=True):
    """A member asks another one for its status, or an empty folder asks to be let in."""

    caller: str = ""
    said: FolderStatus | None = None


class Said(msgspec.Struct, frozen=True):
    """The answer: a status, or why no member is let in."""

    status: FolderStatus | None = None
    refusal: str = ""


class FirstStart:
    """One start of one member."""

    def __init__(
        self, disk: SimulatedDisk, folder: Path, address: str, members: tuple[str, ...]
    ) -> None:
        self._disk, self._folder = disk, folder
        self._address, self._members = address, members
        self._birth: Birth | None = None

    async def lineage(self, flag: Flag, router: RpcRouter, client: RpcClient) -> Lineage:
        """Return the lineage of the member, once it has one; until then and afterwards it answers
        the others through `router`.

        Raises:
            ConfigError: this folder may not start with this flag.
        """
        if flag is Flag.JOIN:
            await self._join(client)
        new = flag is Flag.NEW_CLUSTER
        own = check_member(
            self._folder, self._address, self._members, new_cluster=new, disk=self._disk
        ) or read_lineage(self._disk, self._folder)
        birth = Birth(self._folder, self._address, self._members, b"", own, disk=self._disk)

        async def say(_: Ask) -> Said:
            return Said(birth.status)

        async def let_in(ask: Ask) -> Said:
            return self._let_in(birth.status.lineage, ask)

        router.register(STANDING, Ask, say)
        router.register(LET_IN, Ask, let_in)
        return await birth.be_born(partial(self._ask_all, client))

    async def _ask_all(self, client: RpcClient) -> Mapping[str, FolderStatus]:
        others = [member for member in self._members if member != self._address]
        answers = await asyncio.gather(*(_ask(client, each, STANDING, Ask()) for each in others))
        return {
            peer: said.status
            for peer, said in zip(others, answers, strict=True)
            if said is not None and said.status is not None
        }

    # -- being let in -----------------------------------------------------------------------------

    async def _join(self, client: RpcClient) -> None:
        """Ask to be let in until one refuses. In a cluster that was born no member does else."""
        if vote_file.NAME in self._disk.names(self._folder):
            raise ConfigError(f"--join: {self._folder} holds a member already; start without it")
        self._disk.close(clear(self._disk, self._folder))
        check_owner(self._disk, self._folder, self._address)
        newborn = begin_newborn(self._disk, self._folder)
        if newborn.chosen:
            raise ConfigError(f"--join: {self._folder} began with --new-cluster: go on with that")
        ask = Ask(self._address, FolderStatus(tuple(sorted(self._members)), token=newborn.token))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        while True:
            for peer in self._members:
                said = await _ask(client, peer, LET_IN, ask) if peer != self._address else None
                if said is not None and said.refusal:
                    raise ConfigError(f"--join: {peer} refuses: {said.refusal}")
            await loop.pass_time(ASK_AGAIN_S)

    def _let_in(self, lineage: str, ask: Ask) -> Said:
        if not lineage or ask.said is None:
            raise UnavailableError(f"{self._address} is no member yet")
        answer = may_join(
            read_lineage(self._disk, self._folder),
            self._address,
            tuple(sorted(self._members)),
            admissions=read_admissions(self._disk, self._folder),
            asking={ask.caller: ask.said},
            caller=ask.caller,
        )
        assert isinstance(answer, AdmissionRefused), f"{ask.caller} is let in: {answer}"
        return Said(refusal=answer.why)


async def _ask(client: RpcClient, peer: str, method: str, ask: Ask) -> Said | None:
    try:
        return await client.send(peer, method, ask, Said, SILENCE_S)
    except PaxosBlockError:
        return None
